// Asks a node for its cluster four times a second on one connection, for longer than a login lasts, and prints how often
// the client logged in, logged in again, and failed to.  Arguments: the address, the seconds.

import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.admin.Admin;

public class RenewedLogins {
    public static void main(String[] arguments) throws Exception {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", arguments[0]);
        properties.put("security.protocol", "SASL_PLAINTEXT");
        properties.put("sasl.mechanism", "PLAIN");
        properties.put("sasl.jaas.config", "org.apache.kafka.common.security.plain.PlainLoginModule required"
            + " username=\"alice\" password=\"alice-secret\";");
        long end = System.nanoTime() + Long.parseLong(arguments[1]) * 1_000_000_000L;
        try (Admin admin = Admin.create(properties)) {
            int answers = 0;
            while (System.nanoTime() < end) {
                admin.describeCluster().nodes().get();
                answers++;
                Thread.sleep(250);
            }
            System.out.println("answers\t" + answers);
            admin.metrics().forEach((name, metric) -> {
                if (name.name().endsWith("authentication-total") && name.group().equals("admin-client-metrics")) {
                    System.out.println(name.name() + "\t" + ((Double) metric.metricValue()).intValue());
                }
            });
        }
    }
}

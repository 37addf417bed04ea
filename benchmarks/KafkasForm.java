import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.zookeeper.Op;
import org.apache.zookeeper.ZooKeeper;
import org.apache.zookeeper.data.Stat;

/**
 * One request per znode, ten in flight, through ZooKeeper's own Java client: the form in which Kafka's controller reads
 * and writes partition states. Arguments: address, read | write | arm, number of znodes, partitions per topic, passes.
 * Prints the rate (znodes/s) of each pass; the first ones warm the JVM up.
 */
public final class KafkasForm {
    private static final int WINDOW = 10;
    private final ZooKeeper client;
    private final String[] paths;
    private final int[] versions;
    private final AtomicInteger failures = new AtomicInteger();

    private KafkasForm(ZooKeeper client, int count, int perTopic) {
        this.client = client;
        paths = new String[count];
        versions = new int[count];
        for (int i = 0; i < count; i++) {
            paths[i] = String.format("/brokers/topics/topic-%05d/partitions/%d/state", i / perTopic, i % perTopic);
        }
    }

    private void send(String mode, int i, Runnable done) {
        if (mode.equals("write")) {
            byte[] data = String.format(
                "{\"controller_epoch\":7,\"leader\":%d,\"version\":1,\"leader_epoch\":%d,\"isr\":[1,2,3]}", i % 3 + 1, i % 9)
                .getBytes(StandardCharsets.UTF_8);
            List<Op> ops = List.of(Op.check("/controller_epoch", 0), Op.setData(paths[i], data, versions[i]++));
            client.multi(ops, (code, path, context, results) -> finish(code, done), null);
        } else {
            client.getData(paths[i], mode.equals("arm"), (code, path, context, data, stat) -> finish(code, done), null);
        }
    }

    private void finish(int code, Runnable done) {
        if (code != 0) {
            failures.incrementAndGet();
        }
        done.run();
    }

    private double pass(String mode) throws InterruptedException {
        Semaphore window = new Semaphore(WINDOW);
        CountDownLatch left = new CountDownLatch(paths.length);
        long started = System.nanoTime();
        for (int i = 0; i < paths.length; i++) {
            window.acquire();
            send(mode, i, () -> {
                window.release();
                left.countDown();
            });
        }
        left.await();
        return paths.length * 1e9 / (System.nanoTime() - started);
    }

    public static void main(String[] arguments) throws Exception {
        CountDownLatch connected = new CountDownLatch(1);
        ZooKeeper client = new ZooKeeper(arguments[0], 30_000, event -> connected.countDown());
        connected.await();
        KafkasForm form = new KafkasForm(client, Integer.parseInt(arguments[2]), Integer.parseInt(arguments[3]));
        for (int i = 0; i < form.paths.length; i++) {
            Stat stat = client.exists(form.paths[i], false);
            form.versions[i] = stat.getVersion();
        }
        for (int pass = 0; pass < Integer.parseInt(arguments[4]); pass++) {
            System.out.printf("%.1f%n", form.pass(arguments[1]));
        }
        client.close();
        if (form.failures.get() > 0) {
            System.err.println(form.failures.get() + " requests failed");
            System.exit(1);
        }
    }
}

// Asks Kafka's own AclAuthorizer and SslPrincipalMapper, and Java's X500Principal: one question on each line of standard
// input, its words separated by tabs; one answer on each line of standard output.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Field;
import java.net.InetAddress;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.HashSet;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Set;
import javax.security.auth.x500.X500Principal;
import kafka.security.authorizer.AclAuthorizer;
import org.apache.kafka.common.acl.AccessControlEntry;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.common.security.ssl.SslPrincipalMapper;
import org.apache.kafka.common.utils.SecurityUtils;
import org.apache.kafka.security.authorizer.AclEntry;
import org.apache.kafka.server.authorizer.Action;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;
import org.apache.kafka.server.authorizer.AuthorizationResult;
import scala.jdk.javaapi.CollectionConverters;

public class KafkasAuthorizer {
    static AclAuthorizer authorizer = new AclAuthorizer();

    public static void main(String[] arguments) throws Exception {
        BufferedReader questions = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        StringBuilder answers = new StringBuilder();
        for (String line = questions.readLine(); line != null; line = questions.readLine()) {
            String[] words = line.split("\t", -1);
            answers.append(switch (words[0]) {
                case "acls" -> acls(words);
                case "may" -> may(words);
                case "any" -> any(words);
                case "name" -> new X500Principal(HexFormat.of().parseHex(words[1])).getName();
                default -> mapped(words);
            }).append('\n');
        }
        System.out.write(answers.toString().getBytes(StandardCharsets.UTF_8));
        System.out.flush();
        Runtime.getRuntime().halt(0); // Kafka's metrics leave threads behind
    }

    /** acls everyoneIfNone superUsers type name pattern principal host operation permission type name … */
    static String acls(String[] words) throws Exception {
        authorizer = new AclAuthorizer();
        set("shouldAllowEveryoneIfNoAclIsFound", words[1].equals("1"));
        Set<KafkaPrincipal> superUsers = new HashSet<>();
        for (String user : words[2].split(";")) {
            if (!user.isEmpty()) {
                superUsers.add(SecurityUtils.parseKafkaPrincipal(user));
            }
        }
        set("superUsers", CollectionConverters.asScala(superUsers).toSet());
        Map<ResourcePattern, Set<AclEntry>> byPattern = new HashMap<>();
        for (int i = 3; i + 6 < words.length; i += 7) {
            ResourcePattern pattern =
                new ResourcePattern(ResourceType.fromString(words[i]), words[i + 1], PatternType.fromString(words[i + 2]));
            byPattern.computeIfAbsent(pattern, key -> new HashSet<>()).add(new AclEntry(new AccessControlEntry(
                words[i + 3], words[i + 4], AclOperation.fromString(words[i + 5]), AclPermissionType.fromString(words[i + 6])
            )));
        }
        byPattern.forEach((pattern, entries) ->
            authorizer.updateCache(pattern, new AclAuthorizer.VersionedAcls(CollectionConverters.asScala(entries).toSet(), 0)));
        return "ok";
    }

    /** may principal host operation type name */
    static String may(String[] words) throws Exception {
        ResourcePattern pattern = new ResourcePattern(ResourceType.fromString(words[4]), words[5], PatternType.LITERAL);
        Action action = new Action(AclOperation.fromString(words[3]), pattern, 1, false, false);
        return String.valueOf(authorizer.authorize(from(words), List.of(action)).get(0) == AuthorizationResult.ALLOWED);
    }

    /** any principal host operation type */
    static String any(String[] words) throws Exception {
        return String.valueOf(authorizer.authorizeByResourceType(
            from(words), AclOperation.fromString(words[3]), ResourceType.fromString(words[4])
        ) == AuthorizationResult.ALLOWED);
    }

    /** rule rules name */
    static String mapped(String[] words) {
        try {
            return SslPrincipalMapper.fromRules(words[1]).getName(words[2]);
        } catch (Exception refused) {
            return "refused";
        }
    }

    static void set(String name, Object value) throws Exception {
        Field field = AclAuthorizer.class.getDeclaredField(name);
        field.setAccessible(true);
        field.set(authorizer, value);
    }

    static AuthorizableRequestContext from(String[] words) throws Exception {
        KafkaPrincipal principal = SecurityUtils.parseKafkaPrincipal(words[1]);
        InetAddress address = InetAddress.getByName(words[2]);
        return new AuthorizableRequestContext() {
            public String listenerName() { return "PLAINTEXT"; }
            public SecurityProtocol securityProtocol() { return SecurityProtocol.PLAINTEXT; }
            public KafkaPrincipal principal() { return principal; }
            public InetAddress clientAddress() { return address; }
            public int requestType() { return 3; }
            public int requestVersion() { return 9; }
            public String clientId() { return "me"; }
            public int correlationId() { return 1; }
        };
    }
}

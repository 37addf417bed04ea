// Asks Kafka's own classes: one question on each line of standard input, one answer on each line of standard output.
// Numbers of a list are joined by commas, "-" is an empty list or no rack.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import kafka.api.LeaderAndIsr;
import kafka.cluster.Broker;
import kafka.cluster.EndPoint;
import kafka.controller.ControllerContext;
import kafka.controller.Election;
import kafka.controller.ElectionResult;
import kafka.controller.ReplicaAssignment;
import kafka.controller.LeaderIsrAndControllerEpoch;
import org.apache.kafka.admin.AdminUtils;
import org.apache.kafka.admin.BrokerMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.metadata.LeaderRecoveryState;
import scala.Option;
import scala.Tuple2;
import scala.Tuple3;
import scala.jdk.javaapi.CollectionConverters;

public class KafkasOwn {
    static final TopicPartition PARTITION = new TopicPartition("t", 0);
    static final ControllerContext CONTEXT = new ControllerContext();

    public static void main(String[] arguments) throws Exception {
        BufferedReader questions = new BufferedReader(new InputStreamReader(System.in));
        StringBuilder answers = new StringBuilder();
        for (String line = questions.readLine(); line != null; line = questions.readLine()) {
            String[] words = line.split(" ");
            answers.append(switch (words[0]) {
                case "place" -> place(words);
                case "reassign" -> reassign(words);
                case "imbalance" -> imbalance(words);
                default -> elect(words);
            }).append('\n');
        }
        System.out.print(answers);
        System.out.flush();
        Runtime.getRuntime().halt(0); // Kafka's metrics leave threads behind
    }

    /** place partitions replicationFactor startIndex firstPartition id:rack… */
    static String place(String[] words) {
        List<BrokerMetadata> brokers = new ArrayList<>();
        for (int i = 5; i < words.length; i++) {
            String[] broker = words[i].split(":");
            brokers.add(new BrokerMetadata(number(broker[0]), broker[1].equals("-") ? Optional.empty() : Optional.of(broker[1])));
        }
        try {
            StringBuilder answer = new StringBuilder();
            new TreeMap<>(AdminUtils.assignReplicasToBrokers(
                brokers, number(words[1]), number(words[2]), number(words[3]), number(words[4])
            )).forEach((partition, replicas) -> answer.append(partition).append(':').append(joined(replicas)).append(' '));
            return answer.toString().trim();
        } catch (RuntimeException refused) {
            return refused.getClass().getSimpleName();
        }
    }

    /** reassign replicas adding removing target */
    static String reassign(String[] words) {
        return shown(ReplicaAssignment.apply(list(words[1]), list(words[2]), list(words[3])).reassignTo(list(words[4])));
    }

    /** imbalance replicas adding removing leader isr */
    static String imbalance(String[] words) {
        CONTEXT.resetContext();
        CONTEXT.updatePartitionFullReplicaAssignment(PARTITION, ReplicaAssignment.apply(list(words[1]), list(words[2]), list(words[3])));
        CONTEXT.putPartitionLeadershipInfo(PARTITION, new LeaderIsrAndControllerEpoch(LeaderAndIsr.apply(number(words[4]), list(words[5])), 1));
        return String.valueOf(CONTEXT.preferredReplicaImbalanceCount());
    }

    /** STRATEGY unclean recovery registered shuttingDown failedDirs replicas adding removing leader epoch isr recovery partitionEpoch */
    static String elect(String[] words) {
        CONTEXT.resetContext();
        Map<Broker, Object> brokers = new HashMap<>();
        EndPoint endpoint = new EndPoint("h", 1, new ListenerName("PLAINTEXT"), SecurityProtocol.PLAINTEXT);
        for (Object id : numbers(words[3])) {
            brokers.put(Broker.apply((Integer) id, CollectionConverters.asScala(List.of(endpoint)).toSeq(), Option.empty()), 1L);
        }
        CONTEXT.setLiveBrokers(scala.collection.immutable.Map.from(CollectionConverters.asScala(brokers)));
        numbers(words[4]).forEach(id -> CONTEXT.shuttingDownBrokerIds().add(id));
        numbers(words[5]).forEach(id -> CONTEXT.replicasOnOfflineDirs().put(id, CollectionConverters.asScala(Set.of(PARTITION)).toSet()));
        CONTEXT.updatePartitionFullReplicaAssignment(PARTITION, ReplicaAssignment.apply(list(words[6]), list(words[7]), list(words[8])));
        LeaderAndIsr known = LeaderAndIsr.apply(
            number(words[9]), number(words[10]), list(words[11]), LeaderRecoveryState.of(Byte.parseByte(words[12])), number(words[13])
        );
        var one = CollectionConverters.asScala(List.of(new Tuple2<>(PARTITION, known))).toSeq();
        ElectionResult result = (switch (words[0]) {
            case "OFFLINE" -> Election.leaderForOffline(
                CONTEXT,
                words[2].equals("1"),
                CollectionConverters.asScala(List.of(new Tuple3<>(PARTITION, Option.apply(known), (Object) words[1].equals("1")))).toSeq()
            );
            case "REASSIGN" -> Election.leaderForReassign(CONTEXT, one);
            case "PREFERRED" -> Election.leaderForPreferredReplica(CONTEXT, one);
            case "CONTROLLED_SHUTDOWN" -> Election.leaderForControlledShutdown(CONTEXT, one);
            default -> throw new IllegalArgumentException(words[0]);
        }).head();
        if (result.leaderAndIsr().isEmpty()) {
            return "none";
        }
        LeaderAndIsr elected = result.leaderAndIsr().get();
        return elected.leader() + " " + elected.leaderEpoch() + " " + shown(elected.isr()) + " " + elected.leaderRecoveryState().value()
            + " " + elected.partitionEpoch() + " " + shown(result.liveReplicas());
    }

    static int number(String word) {
        return Integer.parseInt(word);
    }

    static List<Object> numbers(String word) {
        List<Object> found = new ArrayList<>();
        if (!word.equals("-")) {
            for (String one : word.split(",")) {
                found.add(Integer.valueOf(one));
            }
        }
        return found;
    }

    static scala.collection.immutable.List<Object> list(String word) {
        return CollectionConverters.asScala(numbers(word)).toList();
    }

    static String joined(List<?> values) {
        return values.isEmpty() ? "-" : String.join(",", values.stream().map(String::valueOf).toList());
    }

    static String shown(scala.collection.Seq<Object> values) {
        return joined(CollectionConverters.asJava(values));
    }

    static String shown(ReplicaAssignment assignment) {
        return shown(assignment.replicas()) + " " + shown(assignment.addingReplicas()) + " " + shown(assignment.removingReplicas());
    }
}

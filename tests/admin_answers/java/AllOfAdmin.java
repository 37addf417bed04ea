// Uses all of Kafka's Admin, for what succeeds and for what is refused, and prints a line for each call: its name, a
// tab, what came of it.  Exceptions are told by their class, sets and maps in order.  Arguments: the address of a listener
// without a login, that of one with (PLAIN, alice), and a broker that leads all it is asked of.
// A method of Admin that is never called is told at the end.

import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Arrays;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentSkipListSet;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.TopicCollection;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionReplica;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.*;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.quota.*;
import org.apache.kafka.common.resource.*;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.serialization.StringSerializer;

public class AllOfAdmin {
    static final int FIRST = 1, SECOND = 2, NOWHERE = 99;
    static final Set<String> CALLED = new ConcurrentSkipListSet<>();
    static final AclBindingFilter ANY = AclBindingFilter.ANY;
    static String address;

    interface Asked {
        Object get() throws Exception;
    }

    public static void main(String[] arguments) throws Exception {
        address = arguments[0];
        try (Admin admin = recorded(address, false); Admin alice = recorded(arguments[1], true)) {
            topics(admin);
            configs(admin);
            partitions(admin);
            records(admin);
            groups(admin);
            transactions(admin);
            users(admin);
            tokens(alice, admin);
            nodes(admin);
            destroy(admin);
            tell("metrics", () -> !admin.metrics().isEmpty());
        }
        Set<String> all = new TreeSet<>();
        Arrays.stream(Admin.class.getMethods()).map(Method::getName).forEach(all::add);
        all.removeAll(CALLED);
        all.remove("create");
        System.out.println("never called\t" + all);
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    static Admin recorded(String bootstrap, boolean login) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("default.api.timeout.ms", "30000");
        settings.put("request.timeout.ms", "20000");
        if (login) {
            settings.put("security.protocol", "SASL_PLAINTEXT");
            settings.put("sasl.mechanism", "PLAIN");
            settings.put("sasl.jaas.config", "org.apache.kafka.common.security.plain.PlainLoginModule required "
                + "username=\"alice\" password=\"alice-secret\";");
        }
        Admin admin = Admin.create(settings);
        return (Admin) Proxy.newProxyInstance(Admin.class.getClassLoader(), new Class<?>[] {Admin.class}, (self, method, given) -> {
            CALLED.add(method.getName());
            try {
                return method.invoke(admin, given);
            } catch (InvocationTargetException error) {
                throw error.getCause();
            }
        });
    }

    // -- printing -----------------------------------------------------------------------------------------------------

    static void tell(String name, Asked asked) {
        String found;
        try {
            found = shown(asked.get());
        } catch (Throwable error) {
            found = refusal(error);
        }
        System.out.println(name + "\t" + found.replace("\n", " "));
    }

    static String refusal(Throwable error) {
        Throwable cause = error instanceof ExecutionException ? error.getCause() : error;
        return "! " + cause.getClass().getSimpleName();
    }

    static String shown(Object value) throws Exception {
        if (value instanceof KafkaFuture<?> future) {
            return shown(settled(future));
        }
        if (value instanceof Map<?, ?> map) {
            Map<String, String> found = new TreeMap<>();
            for (Map.Entry<?, ?> each : map.entrySet()) {
                Object content = each.getValue();
                String text;
                try {
                    text = shown(content);
                } catch (ExecutionException error) {
                    text = refusal(error);
                }
                found.put(shown(each.getKey()), text);
            }
            return found.toString();
        }
        if (value instanceof Config config) {
            Map<String, String> found = new TreeMap<>();
            for (ConfigEntry entry : config.entries()) {
                found.put(entry.name(), entry.value() + " " + entry.isSensitive() + " " + entry.source() + " " + entry.isReadOnly() + " " + entry.type()
                    + " " + entry.synonyms().stream().map(each -> each.name() + "=" + each.value() + " " + each.source()).toList());
            }
            return found.toString();
        }
        if (value instanceof Collection<?> collection) {
            List<String> found = new java.util.ArrayList<>();
            for (Object each : collection) {
                found.add(shown(each));
            }
            if (!(value instanceof List)) {
                found.sort(null);
            }
            return found.toString();
        }
        if (value instanceof TopicDescription topic) {
            return topic.name() + " " + topic.isInternal() + " " + topic.partitions() + " " + shown(topic.authorizedOperations());
        }
        if (value instanceof Throwable error) {
            return refusal(error);
        }
        if (value instanceof Optional<?> optional) {
            return optional.isPresent() ? shown(optional.get()) : "-";
        }
        return String.valueOf(value);
    }

    static Object settled(KafkaFuture<?> future) throws Exception {
        try {
            return future.get(60, TimeUnit.SECONDS);
        } catch (TimeoutException error) {
            return "! no answer";
        }
    }

    /** Of all nodes: each call is answered by any of them, so by all in forty calls, but for one time in millions. */
    static void untilEverywhere(String what, Asked asked) throws Exception {
        until(what, () -> {
            for (int calls = 0; calls < 40; calls++) {
                if (!(Boolean) asked.get()) {
                    return false;
                }
            }
            return true;
        });
    }

    /** Asked again until it is so. */
    static void until(String what, Asked asked) throws Exception {
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
        while (true) {
            boolean found = false;
            try {
                found = (Boolean) asked.get();
            } catch (ExecutionException error) {
                // asked again
            }
            if (found) {
                return;
            }
            if (System.nanoTime() > deadline) {
                System.out.println("never\t" + what);
                return;
            }
            Thread.sleep(50);
        }
    }

    // -- what is asked ------------------------------------------------------------------------------------------------

    static TopicPartition at(String topic, int partition) {
        return new TopicPartition(topic, partition);
    }

    static NewTopic assigned(String name, Integer... replicas) {
        return new NewTopic(name, Map.of(0, List.of(replicas)));
    }

    static void topics(Admin admin) throws Exception {
        CreateTopicsResult made = admin.createTopics(List.of(
            new NewTopic("a", Map.of(0, List.of(FIRST, SECOND), 1, List.of(FIRST, SECOND))).configs(Map.of("retention.ms", "1000000")),
            new NewTopic("b", 2, (short) 1), assigned("c", FIRST), assigned("gone", NOWHERE, FIRST), new NewTopic("bad/name", 1, (short) 1),
            new NewTopic("large", 1, (short) 9), assigned("d", FIRST), new NewTopic("e", Optional.empty(), Optional.empty())));
        tell("createTopics", made::values);
        for (String name : List.of("a", "b", "bad/name", "large")) {
            tell("createTopics.numPartitions " + name, () -> made.numPartitions(name));
            tell("createTopics.replicationFactor " + name, () -> made.replicationFactor(name));
            tell("createTopics.topicId " + name, () -> !settled(made.topicId(name)).equals(Uuid.ZERO_UUID));
            tell("createTopics.config " + name, () -> made.config(name));
        }
        tell("createTopics again", () -> admin.createTopics(List.of(assigned("a", FIRST))).values());
        tell("createTopics validateOnly", () -> admin.createTopics(List.of(new NewTopic("v", 3, (short) 2)), new CreateTopicsOptions().validateOnly(true)).values());
        untilEverywhere("all brokers know the topics", () -> admin.describeTopics(List.of("a", "b", "c", "d", "e", "gone")).allTopicNames().get().size() == 6);
        tell("listTopics", () -> admin.listTopics().names());
        tell("listTopics internal", () -> admin.listTopics(new ListTopicsOptions().listInternal(true)).names());
        tell("describeTopics", () -> admin.describeTopics(List.of("a", "c", "gone", "none"), new DescribeTopicsOptions().includeAuthorizedOperations(true)).topicNameValues());
        Uuid id = admin.describeTopics(List.of("a")).allTopicNames().get().get("a").topicId();
        tell("describeTopics by id", () -> admin.describeTopics(TopicCollection.ofTopicIds(List.of(id))).topicIdValues().get(id));
        tell("describeTopics by an unknown id", () -> admin.describeTopics(TopicCollection.ofTopicIds(List.of(new Uuid(7, 7)))).topicIdValues());
        tell("createPartitions", () -> admin.createPartitions(Map.of(
            "c", NewPartitions.increaseTo(3, List.of(List.of(FIRST), List.of(FIRST))), "none", NewPartitions.increaseTo(3), "a", NewPartitions.increaseTo(1))).values());
        tell("createPartitions validateOnly", () -> admin.createPartitions(Map.of("b", NewPartitions.increaseTo(9)), new CreatePartitionsOptions().validateOnly(true)).values());
    }

    static void configs(Admin admin) throws Exception {
        ConfigResource a = new ConfigResource(ConfigResource.Type.TOPIC, "a"), none = new ConfigResource(ConfigResource.Type.TOPIC, "none");
        ConfigResource brokers = new ConfigResource(ConfigResource.Type.BROKER, ""), first = new ConfigResource(ConfigResource.Type.BROKER, "1");
        DescribeConfigsOptions synonyms = new DescribeConfigsOptions().includeSynonyms(true);
        tell("describeConfigs", () -> admin.describeConfigs(List.of(a, none, brokers), synonyms).values());
        tell("describeConfigs of a broker", () -> ((Config) settled(admin.describeConfigs(List.of(first)).values().get(first))).get("num.partitions"));
        tell("incrementalAlterConfigs", () -> admin.incrementalAlterConfigs(Map.of(
            a, List.of(new AlterConfigOp(new ConfigEntry("cleanup.policy", "compact"), AlterConfigOp.OpType.APPEND)),
            none, List.of(new AlterConfigOp(new ConfigEntry("retention.ms", "5"), AlterConfigOp.OpType.SET)))).values());
        tell("incrementalAlterConfigs wrong", () -> admin.incrementalAlterConfigs(Map.of(
            a, List.of(new AlterConfigOp(new ConfigEntry("retention.ms", "much"), AlterConfigOp.OpType.SET)))).values());
        tell("incrementalAlterConfigs of a broker", () -> admin.incrementalAlterConfigs(Map.of(
            first, List.of(new AlterConfigOp(new ConfigEntry("max.connections", "600000"), AlterConfigOp.OpType.SET)))).values());
        tell("describeConfigs afterwards", () -> admin.describeConfigs(List.of(a)).values());
        tell("alterConfigs", () -> admin.alterConfigs(Map.of(a, new Config(List.of(new ConfigEntry("segment.ms", "100000"))), none, new Config(List.of()))).values());
        tell("describeConfigs at last", () -> admin.describeConfigs(List.of(a)).values());
    }

    static void partitions(Admin admin) throws Exception {
        tell("electLeaders not needed", () -> admin.electLeaders(ElectionType.PREFERRED, Set.of(at("a", 0))).partitions());
        tell("electLeaders preferred", () -> admin.electLeaders(ElectionType.PREFERRED, Set.of(at("gone", 0), at("none", 0))).partitions());
        tell("electLeaders unclean", () -> admin.electLeaders(ElectionType.UNCLEAN, Set.of(at("a", 0), at("none", 0))).partitions());
        tell("alterPartitionReassignments", () -> admin.alterPartitionReassignments(Map.of(
            at("d", 0), Optional.of(new NewPartitionReassignment(List.of(SECOND))), at("a", 0), Optional.of(new NewPartitionReassignment(List.of(77))),
            at("c", 0), Optional.empty(), at("none", 0), Optional.of(new NewPartitionReassignment(List.of(FIRST))))).values());
        until("d has moved", () -> admin.listPartitionReassignments(Set.of(at("d", 0))).reassignments().get().isEmpty());
        tell("listPartitionReassignments", () -> admin.listPartitionReassignments().reassignments());
        tell("alterPartitionReassignments back", () -> admin.alterPartitionReassignments(Map.of(at("d", 0), Optional.of(new NewPartitionReassignment(List.of(FIRST))))).values());
        until("d has moved back", () -> admin.listPartitionReassignments(Set.of(at("d", 0))).reassignments().get().isEmpty());
        until("d is led by the first", () -> leader(admin, "d") == FIRST);
        untilEverywhere("d is in sync on the first alone", () -> inSync(admin, "d").equals(List.of(FIRST)));
        tell("describeTopics moved", () -> admin.describeTopics(List.of("d")).topicNameValues());
        tell("describeLogDirs", () -> {
            Map<String, LogDirDescription> found = admin.describeLogDirs(List.of(FIRST)).descriptions().get(FIRST).get();
            return new TreeSet<>(found.values().iterator().next().replicaInfos().keySet().stream().filter(each -> each.topic().equals("d")).map(Object::toString).toList());
        });
        TopicPartitionReplica replica = new TopicPartitionReplica("d", 0, FIRST);
        tell("describeReplicaLogDirs", () -> admin.describeReplicaLogDirs(List.of(replica)).values().get(replica).get().getCurrentReplicaLogDir() != null);
        tell("alterReplicaLogDirs", () -> admin.alterReplicaLogDirs(Map.of(replica, "/nowhere")).values());
    }

    static int leader(Admin admin, String topic) throws Exception {
        var found = admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).partitions().get(0).leader();
        return found == null ? -1 : found.id();
    }

    static List<Integer> inSync(Admin admin, String topic) throws Exception {
        return admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).partitions().get(0).isr().stream().map(each -> each.id()).toList();
    }

    static Properties producing(String transactionalId) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", address);
        settings.put("key.serializer", StringSerializer.class.getName());
        settings.put("value.serializer", StringSerializer.class.getName());
        settings.put("transactional.id", transactionalId);
        return settings;
    }

    static void records(Admin admin) throws Exception {
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(producing("tx"))) {
            producer.initTransactions();
            producer.beginTransaction();
            for (int i = 0; i < 5; i++) {
                producer.send(new ProducerRecord<>("a", 0, null, "v" + i)).get();
            }
            tell("describeTransactions", () -> {
                TransactionDescription found = admin.describeTransactions(List.of("tx")).description("tx").get();
                return found.state() + " " + found.topicPartitions() + " " + found.transactionTimeoutMs();
            });
            tell("describeTransactions of an unknown one", () -> admin.describeTransactions(List.of("unknown")).description("unknown"));
            tell("listTransactions", () -> admin.listTransactions().all().get().stream().map(each -> each.transactionalId() + " " + each.state()).toList());
            tell("describeProducers", () -> admin.describeProducers(List.of(at("a", 0))).partitionResult(at("a", 0)).get().activeProducers().size());
            tell("describeProducers of none", () -> admin.describeProducers(List.of(at("none", 0)), new DescribeProducersOptions().timeoutMs(3000)).partitionResult(at("none", 0)));
            producer.commitTransaction();
        }
        until("the end of the transaction", () -> settled(admin.listOffsets(Map.of(at("a", 0), OffsetSpec.latest())).partitionResult(at("a", 0))).toString().contains("offset=6"));
        tell("listOffsets", () -> admin.listOffsets(Map.of(at("a", 0), OffsetSpec.latest(), at("c", 0), OffsetSpec.earliest())).all().get().values().stream().map(each -> each.offset()).sorted().toList());
        tell("deleteRecords", () -> admin.deleteRecords(Map.of(at("a", 0), RecordsToDelete.beforeOffset(3))).lowWatermarks().get(at("a", 0)).get().lowWatermark());
        tell("deleteRecords too many", () -> admin.deleteRecords(Map.of(at("a", 0), RecordsToDelete.beforeOffset(99))).lowWatermarks());
    }

    static void groups(Admin admin) throws Exception {
        Map<TopicPartition, OffsetAndMetadata> offsets = Map.of(at("a", 0), new OffsetAndMetadata(4), at("c", 0), new OffsetAndMetadata(0));
        tell("alterConsumerGroupOffsets", () -> admin.alterConsumerGroupOffsets("g", offsets).all());
        tell("listConsumerGroupOffsets", () -> admin.listConsumerGroupOffsets("g").partitionsToOffsetAndMetadata());
        tell("listConsumerGroups", () -> admin.listConsumerGroups().all().get().stream().map(each -> each.groupId() + " " + each.state().get()).toList());
        tell("describeConsumerGroups", () -> admin.describeConsumerGroups(List.of("g", "unknown")).describedGroups().get("g").get().state());
        tell("deleteConsumerGroupOffsets", () -> admin.deleteConsumerGroupOffsets("g", Set.of(at("a", 0))).all());
        tell("deleteConsumerGroupOffsets of an unknown one", () -> admin.deleteConsumerGroupOffsets("unknown", Set.of(at("a", 0))).all());
        tell("removeMembersFromConsumerGroup", () -> admin.removeMembersFromConsumerGroup("g", new RemoveMembersFromConsumerGroupOptions(List.of(new MemberToRemove("m")))).all());
        tell("deleteConsumerGroups", () -> admin.deleteConsumerGroups(List.of("g", "unknown")).deletedGroups());
    }

    static void transactions(Admin admin) throws Exception {
        tell("fenceProducers", () -> admin.fenceProducers(List.of("tx")).all());
        tell("abortTransaction", () -> admin.abortTransaction(new AbortTransactionSpec(at("a", 0), 12345, (short) 0, 0)).all());
        tell("listTransactions filtered", () -> admin.listTransactions(new ListTransactionsOptions().filterStates(Set.of(TransactionState.ONGOING))).all());
    }

    static void users(Admin admin) throws Exception {
        ScramCredentialInfo info = new ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096);
        tell("alterUserScramCredentials", () -> admin.alterUserScramCredentials(List.of(
            new UserScramCredentialUpsertion("u", info, "secret"), new UserScramCredentialDeletion("unknown", ScramMechanism.SCRAM_SHA_512),
            new UserScramCredentialUpsertion("few", new ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 1), "secret"))).values());
        tell("describeUserScramCredentials", () -> admin.describeUserScramCredentials().all());
        tell("describeUserScramCredentials of an unknown one", () -> admin.describeUserScramCredentials(List.of("unknown")).description("unknown"));
        ClientQuotaEntity user = new ClientQuotaEntity(Map.of("user", "u")), odd = new ClientQuotaEntity(Map.of("colour", "red"));
        ClientQuotaAlteration.Op rate = new ClientQuotaAlteration.Op("producer_byte_rate", 1000.0);
        tell("alterClientQuotas", () -> admin.alterClientQuotas(List.of(
            new ClientQuotaAlteration(user, List.of(rate)), new ClientQuotaAlteration(odd, List.of(rate)))).values());
        tell("describeClientQuotas", () -> admin.describeClientQuotas(ClientQuotaFilter.all()).entities());
        tell("describeClientQuotas odd", () -> admin.describeClientQuotas(ClientQuotaFilter.contains(List.of(ClientQuotaFilterComponent.ofEntity("colour", "red")))).entities());
        tell("alterClientQuotas removed", () -> admin.alterClientQuotas(List.of(new ClientQuotaAlteration(user, List.of(new ClientQuotaAlteration.Op("producer_byte_rate", null))))).all());
        AclBinding acl = new AclBinding(new ResourcePattern(ResourceType.TOPIC, "a", PatternType.LITERAL), new AccessControlEntry("User:u", "*", AclOperation.READ, AclPermissionType.ALLOW));
        AclBinding wrong = new AclBinding(new ResourcePattern(ResourceType.CLUSTER, "x", PatternType.LITERAL), new AccessControlEntry("User:u", "*", AclOperation.ALTER, AclPermissionType.ALLOW));
        tell("createAcls", () -> admin.createAcls(List.of(acl, wrong)).values());
        untilEverywhere("the ACL is known", () -> admin.describeAcls(ANY).values().get().size() == 1);
        tell("describeAcls", () -> admin.describeAcls(ANY).values());
        tell("deleteAcls", () -> admin.deleteAcls(List.of(ANY)).all());
        untilEverywhere("the ACL is gone", () -> admin.describeAcls(ANY).values().get().isEmpty());
    }

    static void tokens(Admin alice, Admin admin) throws Exception {
        tell("createDelegationToken without a login", () -> admin.createDelegationToken().delegationToken());
        var token = alice.createDelegationToken(new CreateDelegationTokenOptions().renewers(List.of(new KafkaPrincipal("User", "bob")))).delegationToken().get();
        tell("createDelegationToken", () -> token.tokenInfo().owner() + " " + token.tokenInfo().renewers());
        untilEverywhere("all nodes know the token", () -> alice.describeDelegationToken().delegationTokens().get().size() == 1);
        tell("describeDelegationToken", () -> alice.describeDelegationToken().delegationTokens().get().stream().map(each -> each.tokenInfo().owner() + " " + each.tokenInfo().renewers()).toList());
        until("renewed by any node", () -> alice.renewDelegationToken(token.hmac()).expiryTimestamp().get() > 0);
        tell("renewDelegationToken unknown", () -> alice.renewDelegationToken("x".getBytes(StandardCharsets.UTF_8)).expiryTimestamp());
        tell("expireDelegationToken", () -> alice.expireDelegationToken(token.hmac()).expiryTimestamp().get() > 0);
        untilEverywhere("no node knows the token", () -> alice.describeDelegationToken().delegationTokens().get().isEmpty());
    }

    static void nodes(Admin admin) throws Exception {
        DescribeClusterResult cluster = admin.describeCluster(new DescribeClusterOptions().includeAuthorizedOperations(true));
        tell("describeCluster.nodes", () -> new TreeSet<>(cluster.nodes().get().stream().map(each -> each.id()).toList()));
        tell("describeCluster.controller", () -> cluster.controller().get().id());
        tell("describeCluster.authorizedOperations", cluster::authorizedOperations);
        tell("describeFeatures", () -> {
            FeatureMetadata found = admin.describeFeatures().featureMetadata().get();
            return found.finalizedFeatures() + " " + found.supportedFeatures().keySet();
        });
        tell("updateFeatures", () -> admin.updateFeatures(Map.of("no.such", new FeatureUpdate((short) 1, FeatureUpdate.UpgradeType.UPGRADE)), new UpdateFeaturesOptions()).values());
        tell("describeMetadataQuorum", () -> admin.describeMetadataQuorum().quorumInfo());
        tell("unregisterBroker", () -> admin.unregisterBroker(NOWHERE).all());
        tell("listClientMetricsResources", () -> admin.listClientMetricsResources().all());
        tell("clientInstanceId", () -> admin.clientInstanceId(Duration.ofSeconds(3)));
        tell("addRaftVoter", () -> admin.addRaftVoter(9, new Uuid(1, 1), Set.of(new RaftVoterEndpoint("CONTROLLER", "localhost", 1))).all());
        tell("removeRaftVoter", () -> admin.removeRaftVoter(9, new Uuid(1, 1)).all());
    }

    static void destroy(Admin admin) throws Exception {
        Uuid id = admin.describeTopics(List.of("b")).allTopicNames().get().get("b").topicId();
        tell("deleteTopics", () -> admin.deleteTopics(List.of("a", "c", "d", "e", "none")).topicNameValues());
        tell("deleteTopics by id", () -> admin.deleteTopics(TopicCollection.ofTopicIds(List.of(id))).topicIdValues().get(id));
        tell("deleteTopics by an unknown id", () -> admin.deleteTopics(TopicCollection.ofTopicIds(List.of(new Uuid(7, 7)))).topicIdValues().values());
        tell("deleteTopics with a replica that is nowhere", () -> admin.deleteTopics(List.of("gone")).all());
        untilEverywhere("all nodes have forgotten the topics", () -> admin.listTopics().names().get().isEmpty());
        tell("listTopics at last", () -> admin.listTopics().names());
    }
}

// A producer with Java's defaults (acks=all, idempotent), and consumers with and without a group; runs until SIGTERM.
//   java -cp 'jars/*' LoadClient.java BOOTSTRAP TOPIC PARTITIONS INTERVAL_MS
// A record's value is its number within its partition.  The output format is in tally.py.  Times are System.nanoTime in
// microseconds; on Linux that is CLOCK_MONOTONIC, which all processes of a machine share.

import java.io.BufferedOutputStream;
import java.io.PrintStream;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;

public final class LoadClient {
    private static final long CATCH_UP_MS = 60_000;

    private final String bootstrap;
    private final String topic;
    private final int partitions;
    private final long intervalNanos;
    private final PrintStream out = new PrintStream(new BufferedOutputStream(System.out, 1 << 16), false);
    private final long[] lastAcknowledged;
    private volatile boolean stopping = false;
    private volatile boolean produced = false;

    private LoadClient(String[] args) {
        bootstrap = args[0];
        topic = args[1];
        partitions = Integer.parseInt(args[2]);
        intervalNanos = Long.parseLong(args[3]) * 1_000_000;
        lastAcknowledged = new long[partitions];
        java.util.Arrays.fill(lastAcknowledged, -1);
    }

    public static void main(String[] args) throws Exception {
        LoadClient client = new LoadClient(args);
        Thread main = Thread.currentThread();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            client.stopping = true;
            try {
                main.join();
            } catch (InterruptedException ignored) {
                // halted
            }
        }));
        client.run();
    }

    private void run() throws Exception {
        Thread plain = new Thread(() -> consume("plain"));
        Thread group = new Thread(() -> consume("group"));
        plain.start();
        group.start();
        produce();
        produced = true;
        plain.join();
        group.join();
        consume("readback");
        line("end");
        flush();
    }

    private static long nowUs() {
        return System.nanoTime() / 1000;
    }

    private void line(String text) {
        synchronized (out) {
            out.print(text);
            out.print('\n');
        }
    }

    private void flush() {
        synchronized (out) {
            out.flush();
        }
    }

    private void error(String who, int partition, Throwable error) {
        line("e " + who + " " + partition + " " + nowUs() + " " + String.valueOf(error).replace('\n', ' '));
    }

    private Properties properties() {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        for (String side : new String[] {"key", "value"}) {
            properties.put(side + ".serializer", "org.apache.kafka.common.serialization.StringSerializer");
            properties.put(side + ".deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        }
        return properties;
    }

    private void produce() throws InterruptedException {
        Properties properties = properties();
        properties.put("acks", "all");  // defaults since 3.0; set for older jars
        properties.put("enable.idempotence", "true");
        KafkaProducer<String, String> producer = new KafkaProducer<>(properties);
        long due = System.nanoTime();
        for (long sequence = 0; !stopping; sequence++) {
            for (int partition = 0; partition < partitions; partition++) {
                send(producer, partition, sequence);
            }
            flush();
            due = Math.max(due + intervalNanos, System.nanoTime());
            while (System.nanoTime() < due) {
                Thread.sleep(Math.max(1, (due - System.nanoTime()) / 1_000_000));
            }
        }
        producer.close();
    }

    private void send(KafkaProducer<String, String> producer, int partition, long sequence) {
        long sent = nowUs();
        String value = Long.toString(sequence);
        try {
            producer.send(new ProducerRecord<>(topic, partition, null, value), (metadata, error) -> {
                if (error != null) {
                    error("producer", partition, error);
                } else {
                    lastAcknowledged[partition] = Math.max(lastAcknowledged[partition], sequence);
                    line("a " + partition + " " + sequence + " " + sent + " " + nowUs());
                }
            });
        } catch (RuntimeException error) {
            error("producer", partition, error);
        }
    }

    private void consume(String who) {
        Properties properties = properties();
        properties.put("auto.offset.reset", "earliest");
        properties.put("fetch.min.bytes", "100000");  // otherwise consumers would send a request for every record
        List<TopicPartition> all = new ArrayList<>();
        for (int partition = 0; partition < partitions; partition++) {
            all.add(new TopicPartition(topic, partition));
        }
        if (who.equals("group")) {
            properties.put("group.id", "group-of-" + topic);
        } else {
            properties.put("enable.auto.commit", "false");
        }
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(properties)) {
            if (who.equals("group")) {
                consumer.subscribe(List.of(topic));
            } else {
                consumer.assign(all);
                consumer.seekToBeginning(all);
            }
            poll(consumer, who);
        } catch (RuntimeException error) {
            error(who, -1, error);
        }
        flush();
    }

    private void poll(KafkaConsumer<String, String> consumer, String who) {
        Map<Integer, Long> highest = new HashMap<>();
        long deadline = Long.MAX_VALUE;
        while (System.currentTimeMillis() < deadline) {
            try {
                emit(consumer.poll(Duration.ofMillis(200)), who, highest);
            } catch (RuntimeException error) {
                error(who, -1, error);
            }
            if (produced) {
                if (deadline == Long.MAX_VALUE) {
                    deadline = System.currentTimeMillis() + CATCH_UP_MS;
                }
                if (caughtUp(highest)) {
                    return;
                }
            }
        }
    }

    private boolean caughtUp(Map<Integer, Long> highest) {
        for (int partition = 0; partition < partitions; partition++) {
            if (highest.getOrDefault(partition, -1L) < lastAcknowledged[partition]) {
                return false;
            }
        }
        return true;
    }

    /** Prints consecutive numbers as one line. */
    private void emit(ConsumerRecords<String, String> records, String who, Map<Integer, Long> highest) {
        for (TopicPartition partition : records.partitions()) {
            long first = -1;
            long last = -2;
            for (ConsumerRecord<String, String> record : records.records(partition)) {
                long sequence = Long.parseLong(record.value());
                highest.merge(partition.partition(), sequence, Math::max);
                if (sequence != last + 1) {
                    run(who, partition.partition(), first, last);
                    first = sequence;
                }
                last = sequence;
            }
            run(who, partition.partition(), first, last);
        }
    }

    private void run(String who, int partition, long first, long last) {
        if (first >= 0) {
            line("c " + who + " " + partition + " " + first + " " + last + " " + nowUs());
        }
    }
}

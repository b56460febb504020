import com.fasterxml.jackson.databind.DeserializationFeature;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.PropertyNamingStrategies;
import com.fasterxml.jackson.databind.json.JsonMapper;
import java.io.IOException;
import java.time.Duration;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.common.errors.SerializationException;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.errors.LogAndContinueExceptionHandler;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.TimeWindows;

/**
 * Prints the CPU of each function of each service, minute by minute, from icestream.flat (JSON):
 *
 * <pre>mvn -q compile exec:java -Dexec.args=127.0.0.1:9092</pre>
 *
 * A line has the start of the minute, the CPU in seconds, the service and the function, with tabs between them. The
 * last line of a minute, service and function counts. What comes more than an hour late is left out.
 */
public final class FunctionCpu {
    private static final String CPU = "process_cpu:cpu:nanoseconds:cpu:nanoseconds";

    private static final ObjectMapper JSON = JsonMapper.builder()
            .propertyNamingStrategy(PropertyNamingStrategies.SNAKE_CASE)
            .disable(DeserializationFeature.FAIL_ON_UNKNOWN_PROPERTIES)
            .build();

    /** The members of a record that are needed here. */
    record Flat(long startUnixMilli, String profileType, String service, List<String> functions, long value) {
        String leaf() {
            return functions.get(functions.size() - 1);
        }
    }

    public static void main(String[] args) throws InterruptedException {
        Properties config = new Properties();
        config.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, args[0]);
        config.put(StreamsConfig.APPLICATION_ID_CONFIG, "function-cpu");
        // Each record counts once, whatever is killed, and records of transactions that failed do not.
        config.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        config.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 1000);
        config.put(StreamsConfig.consumerPrefix("auto.offset.reset"), "earliest");
        config.put(StreamsConfig.consumerPrefix("session.timeout.ms"), 10_000); // until others take over
        // Kafka keeps the sums longer than icestream.flat has records, so that a restart in a backlog finds them.
        config.put(
                StreamsConfig.WINDOW_STORE_CHANGE_LOG_ADDITIONAL_RETENTION_MS_CONFIG,
                Duration.ofDays(4).toMillis());
        config.put(
                StreamsConfig.DESERIALIZATION_EXCEPTION_HANDLER_CLASS_CONFIG, LogAndContinueExceptionHandler.class);

        KafkaStreams streams = new KafkaStreams(topology().build(), config);
        Runtime.getRuntime().addShutdownHook(new Thread(streams::close));
        streams.start();
        Thread.currentThread().join();
    }

    private static StreamsBuilder topology() {
        StreamsBuilder builder = new StreamsBuilder();
        Serde<Flat> serde = Serdes.serdeFrom(FunctionCpu::json, FunctionCpu::parsed);
        Consumed<String, Flat> flat = Consumed.with(Serdes.String(), serde)
                // Minutes are those of the samples, not those in which Kafka got them.
                .withTimestampExtractor((record, partitionTime) ->
                        record.value() instanceof Flat of ? of.startUnixMilli() : partitionTime);
        builder.stream("icestream.flat", flat)
                .filter((host, record) -> record != null && CPU.equals(record.profileType()))
                .map((host, record) -> KeyValue.pair(record.service() + "\t" + record.leaf(), record.value()))
                .groupByKey(Grouped.with(Serdes.String(), Serdes.Long()))
                .windowedBy(TimeWindows.ofSizeAndGrace(Duration.ofMinutes(1), Duration.ofHours(1)))
                .reduce(Long::sum)
                .toStream()
                .foreach((key, nanoseconds) -> System.out.printf(
                        "%s\t%.3f\t%s%n", key.window().startTime(), nanoseconds / 1e9, key.key()));
        return builder;
    }

    private static byte[] json(String topic, Flat record) {
        try {
            return JSON.writeValueAsBytes(record);
        } catch (IOException error) {
            throw new SerializationException(error);
        }
    }

    private static Flat parsed(String topic, byte[] data) {
        try {
            return data == null ? null : JSON.readValue(data, Flat.class);
        } catch (IOException error) {
            throw new SerializationException(error);
        }
    }
}

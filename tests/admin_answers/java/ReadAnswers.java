// Reads answers with Kafka's own classes: "apiKey version base64" on each line of standard input, JSON on each line of
// standard output.  What cannot be read, or has bytes behind its end, is a JSON text that says so.

import com.fasterxml.jackson.databind.JsonNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.Base64;
import org.apache.kafka.common.message.ApiMessageType;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;

public class ReadAnswers {
    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        StringBuilder out = new StringBuilder();
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ", -1);
            ByteBuffer body = ByteBuffer.wrap(Base64.getDecoder().decode(words[2]));
            out.append(read(Short.parseShort(words[0]), Short.parseShort(words[1]), body)).append('\n');
        }
        System.out.print(out);
    }

    static String read(short api, short version, ByteBuffer body) {
        try {
            ApiMessage answer = ApiMessageType.fromApiKey(api).newResponse();
            answer.read(new ByteBufferAccessor(body), version);
            if (body.hasRemaining()) {
                return "\"garbled: " + body.remaining() + " bytes too many\"";
            }
            Class<?> converter = Class.forName(answer.getClass().getName() + "JsonConverter");
            return ((JsonNode) converter.getMethod("write", answer.getClass(), short.class).invoke(null, answer, version)).toString();
        } catch (Exception error) {
            return "\"garbled: " + error.toString().replaceAll("[\\\\\"\\p{Cntrl}]", "'") + "\"";
        }
    }
}

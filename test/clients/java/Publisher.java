import com.rabbitmq.client.AMQP;
import com.rabbitmq.client.Channel;
import com.rabbitmq.client.Connection;
import com.rabbitmq.client.ConnectionFactory;
import java.io.ByteArrayOutputStream;
import java.math.BigDecimal;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Date;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** Publishes COUNT orders with a delay. */
public class Publisher {
    private static final String EXCHANGE = System.getenv().getOrDefault("EXCHANGE", "orders.delayed");
    private static final long START = 1769688000L; // seconds
    private static final Object[] DELAYS = {null, 0, -5L, (short) 250, 700.9, 1200, "450", 3000L}; // ms

    private static void declare(Channel channel) throws Exception {
        // With the plugin: "x-delayed-message", true, false, Map.of("x-delayed-type", "topic")
        channel.exchangeDeclare(EXCHANGE, "topic", true);
    }

    private static Map<String, Object> headers(int n, Object delay) {
        Map<String, Object> headers = new HashMap<>();
        headers.put("text", "grüße");
        headers.put("bytes", new byte[] {0, -1, -128});
        headers.put("yes", true);
        headers.put("no", false);
        headers.put("int8", (byte) -n);
        headers.put("int16", (short) (300 + n));
        headers.put("int32", 70000 + n);
        headers.put("int64", (1L << 40) + n);
        headers.put("float", 0.5f);
        headers.put("double", 12.34);
        headers.put("decimal", new BigDecimal("12.34"));
        headers.put("time", new Date(START * 1000));
        headers.put("nothing", null);
        headers.put("list", Arrays.asList(n, "two", true, null, List.of(3), Map.of("four", 4)));
        headers.put("table", Map.of("customer", Map.of("id", n, "name", "Ann"), "tags", List.of("a", "b")));
        if (delay != null) {
            headers.put("x-delay", delay);
        }
        return headers;
    }

    private static AMQP.BasicProperties properties(int n, Object delay) {
        return new AMQP.BasicProperties.Builder()
                .contentType("text/plain")
                .contentEncoding("identity")
                .headers(headers(n, delay))
                .deliveryMode(1 + n % 2)
                .priority(1 + n % 9)
                .correlationId("correlation-" + n)
                .replyTo("replies")
                .expiration("600000")
                .messageId(n % 3 == 0 ? null : "java-" + n)
                .timestamp(new Date((START + n) * 1000))
                .type("order")
                .userId("guest")
                .appId("shop")
                .build();
    }

    private static byte[] body(int n) {
        ByteArrayOutputStream body = new ByteArrayOutputStream();
        body.writeBytes((n + " " + System.currentTimeMillis() + "\n").getBytes(StandardCharsets.UTF_8));
        for (int b = 0; b < 256; b++) {
            body.write(b);
        }
        return body.toByteArray();
    }

    public static void main(String[] args) throws Exception {
        ConnectionFactory factory = new ConnectionFactory();
        factory.setUri(System.getenv("AMQP_URL"));
        try (Connection connection = factory.newConnection()) {
            Channel channel = connection.createChannel();
            declare(channel);
            channel.confirmSelect();
            int count = Integer.parseInt(System.getenv("COUNT"));
            for (int n = 0; n < count; n++) {
                channel.basicPublish(
                        EXCHANGE, "order." + n, true, properties(n, DELAYS[n % DELAYS.length]), body(n));
            }
            channel.waitForConfirmsOrDie(10_000);
        }
    }
}

import com.rabbitmq.client.AMQP;
import com.rabbitmq.client.Channel;
import com.rabbitmq.client.Connection;
import com.rabbitmq.client.ConnectionFactory;
import com.rabbitmq.client.DefaultConsumer;
import com.rabbitmq.client.Envelope;
import java.io.IOException;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.stream.Collectors;

/** Consumes COUNT orders and prints each as a line of JSON. */
public class Consumer {
    private static final String EXCHANGE = System.getenv().getOrDefault("EXCHANGE", "orders");
    private static final String QUEUE = System.getenv("QUEUE");

    private static void declare(Channel channel) throws Exception {
        // With the plugin: "x-delayed-message", true, false, Map.of("x-delayed-type", "topic")
        channel.exchangeDeclare(EXCHANGE, "topic", true);
    }

    private static String quote(String text) {
        return '"' + text.replace("\\", "\\\\").replace("\"", "\\\"") + '"';
    }

    private static String json(Map<String, Object> table) {
        return table.entrySet().stream()
                .map(e -> quote(e.getKey()) + ":" + json(e.getValue()))
                .collect(Collectors.joining(",", "{", "}"));
    }

    /** Returns a value with its type. */
    @SuppressWarnings("unchecked")
    private static String json(Object value) {
        if (value == null) {
            return "null";
        }
        if (value instanceof Map) {
            return json((Map<String, Object>) value);
        }
        if (value instanceof List) {
            return ((List<Object>) value).stream().map(Consumer::json).collect(Collectors.joining(",", "[", "]"));
        }
        String text = value instanceof byte[] ? Base64.getEncoder().encodeToString((byte[]) value) : value.toString();
        return quote(value.getClass().getSimpleName() + " " + text);
    }

    private static String line(Envelope envelope, AMQP.BasicProperties p, byte[] body) {
        Map<String, Object> headers = p.getHeaders() == null ? Map.of() : p.getHeaders();
        List<String> properties = List.of(
                json(p.getContentType()), json(p.getContentEncoding()), json(p.getDeliveryMode()),
                json(p.getPriority()), json(p.getCorrelationId()), json(p.getReplyTo()),
                json(p.getExpiration()), json(p.getMessageId()), json(p.getTimestamp()),
                json(p.getType()), json(p.getUserId()), json(p.getAppId()));
        return "{\"at\":" + System.currentTimeMillis()
                + ",\"body\":" + quote(Base64.getEncoder().encodeToString(body))
                + ",\"key\":" + quote(envelope.getRoutingKey())
                + ",\"properties\":" + properties
                + ",\"headers\":" + json(headers) + "}";
    }

    public static void main(String[] args) throws Exception {
        ConnectionFactory factory = new ConnectionFactory();
        factory.setUri(System.getenv("AMQP_URL"));
        try (Connection connection = factory.newConnection()) {
            Channel channel = connection.createChannel();
            declare(channel);
            channel.queueDeclare(QUEUE, true, false, false, null);
            channel.queueBind(QUEUE, EXCHANGE, "order.#");
            channel.basicQos(10);
            CountDownLatch left = new CountDownLatch(Integer.parseInt(System.getenv("COUNT")));
            channel.basicConsume(QUEUE, false, new DefaultConsumer(channel) {
                @Override
                public void handleDelivery(
                        String tag, Envelope envelope, AMQP.BasicProperties properties, byte[] body)
                        throws IOException {
                    System.out.println(line(envelope, properties, body));
                    getChannel().basicAck(envelope.getDeliveryTag(), false);
                    left.countDown();
                }
            });
            System.out.println("ready");
            left.await();
        }
    }
}

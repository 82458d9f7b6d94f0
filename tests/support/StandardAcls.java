import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Method;
import java.net.InetAddress;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.metadata.authorizer.StandardAcl;
import org.apache.kafka.metadata.authorizer.StandardAuthorizer;
import org.apache.kafka.server.authorizer.Action;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;
import org.apache.kafka.server.authorizer.AuthorizationResult;

/**
 * Asks Kafka's StandardAuthorizer. Lines of words with tabs between them come in: `world` forgets all ACLs,
 * `acl TYPE NAME PRINCIPAL OPERATION EFFECT` adds one, `ask PRINCIPAL OPERATION TYPE NAME` and
 * `any PRINCIPAL OPERATION TYPE` are questions, each of which is answered by a line `true` or `false`.
 */
class StandardAcls {
    record Caller(KafkaPrincipal principal) implements AuthorizableRequestContext {
        public String listenerName() { return "CLIENT"; }
        public SecurityProtocol securityProtocol() { return SecurityProtocol.PLAINTEXT; }
        public InetAddress clientAddress() { return InetAddress.getLoopbackAddress(); }
        public int requestType() { return 0; }
        public int requestVersion() { return 0; }
        public String clientId() { return "test"; }
        public int correlationId() { return 0; }
    }

    static Caller caller(String name) {
        return new Caller(new KafkaPrincipal(KafkaPrincipal.USER_TYPE, name));
    }

    static StandardAuthorizer empty() throws ReflectiveOperationException {
        StandardAuthorizer made = new StandardAuthorizer();
        for (Method method : StandardAuthorizer.class.getMethods()) {
            if (method.getName().equals("withPluginMetrics")) {  // not in 3.9; needed in 4.4
                Class<?> metrics = Class.forName("org.apache.kafka.common.metrics.internals.PluginMetricsImpl");
                method.invoke(made, metrics.getConstructors()[0].newInstance(new Metrics(), Map.of()));
            }
        }
        made.configure(Map.of());
        made.completeInitialLoad();
        return made;
    }

    public static void main(String[] none) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        StringBuilder answers = new StringBuilder();
        StandardAuthorizer authorizer = empty();
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split("\t", -1);
            switch (words[0]) {
                case "world" -> authorizer = empty();
                case "acl" -> authorizer.addAcl(Uuid.randomUuid(), new StandardAcl(
                    ResourceType.valueOf(words[1]), words[2], PatternType.LITERAL, "User:" + words[3], "*",
                    AclOperation.valueOf(words[4]), AclPermissionType.valueOf(words[5])));
                case "ask" -> {
                    ResourcePattern on = new ResourcePattern(ResourceType.valueOf(words[3]), words[4], PatternType.LITERAL);
                    Action action = new Action(AclOperation.valueOf(words[2]), on, 1, false, false);
                    AuthorizationResult found = authorizer.authorize(caller(words[1]), List.of(action)).get(0);
                    answers.append(found == AuthorizationResult.ALLOWED).append('\n');
                }
                case "any" -> {
                    AuthorizationResult found = authorizer.authorizeByResourceType(
                        caller(words[1]), AclOperation.valueOf(words[2]), ResourceType.valueOf(words[3]));
                    answers.append(found == AuthorizationResult.ALLOWED).append('\n');
                }
                default -> throw new IllegalArgumentException(line);
            }
        }
        System.out.print(answers);
    }
}

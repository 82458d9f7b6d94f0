import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationHandler;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.List;

/**
 * Runs Kafka's command line tools one after the other in one Java machine. Lines of words in Base64 with tabs between them come
 * in: a class, what is typed, and arguments. Each is answered by a line: the exit code, what was printed, and what was logged.
 */
class KafkaTools {
    /** Leaves a tool where it would end its process; some catch even this, and go on until they end once more. */
    static class Ended extends RuntimeException { }

    /** Writes to the buffer of the tool that started the thread: what an earlier one left running writes to its own. */
    static class Shared extends OutputStream {
        final InheritableThreadLocal<ByteArrayOutputStream> buffer = new InheritableThreadLocal<>();

        @Override
        public void write(int one) {
            if (buffer.get() != null) buffer.get().write(one);
        }

        @Override
        public void write(byte[] some, int from, int count) {
            if (buffer.get() != null) buffer.get().write(some, from, count);
        }
    }

    static final List<Runnable> atExit = new ArrayList<>();
    static final List<Integer> codes = new ArrayList<>();

    static Object end(Object code) {
        codes.add((Integer) code);
        throw new Ended();
    }

    /** Has Kafka's own way to end a process call the handler. */
    static void replace(String setter, InvocationHandler handler) throws ReflectiveOperationException {
        Class<?> exit;
        try {
            exit = Class.forName("org.apache.kafka.common.utils.internals.Exit");
        } catch (ClassNotFoundException before4) {
            exit = Class.forName("org.apache.kafka.common.utils.Exit");
        }
        for (Method method : exit.getMethods()) {
            if (method.getName().equals(setter)) {
                Class<?> type = method.getParameterTypes()[0];
                method.invoke(null, Proxy.newProxyInstance(type.getClassLoader(), new Class<?>[] {type}, handler));
            }
        }
    }

    static int run(String tool, String[] arguments) {
        codes.clear();
        try {
            Class.forName(tool).getMethod("main", String[].class).invoke(null, (Object) arguments);
            codes.add(0);
        } catch (InvocationTargetException raised) {
            if (!(raised.getCause() instanceof Ended)) raised.getCause().printStackTrace();
            codes.add(1);
        } catch (ReflectiveOperationException unknown) {
            unknown.printStackTrace();
            codes.add(1);
        }
        atExit.forEach(Runnable::run);
        atExit.clear();
        return codes.get(0);
    }

    public static void main(String[] none) throws Exception {
        PrintStream answers = System.out;
        Shared out = new Shared(), err = new Shared();
        System.setOut(new PrintStream(out, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(err, true, StandardCharsets.UTF_8));
        replace("setExitProcedure", (proxy, method, given) -> end(given[0]));
        replace("setHaltProcedure", (proxy, method, given) -> end(given[0]));
        replace("setShutdownHookAdder", (proxy, method, given) -> {
            atExit.add((Runnable) given[1]);
            return null;
        });
        Base64.Encoder encoder = Base64.getEncoder();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split("\t", -1);
            for (int i = 0; i < words.length; i++) words[i] = new String(Base64.getDecoder().decode(words[i]), StandardCharsets.UTF_8);
            out.buffer.set(new ByteArrayOutputStream());
            err.buffer.set(new ByteArrayOutputStream());
            System.setIn(new ByteArrayInputStream(words[1].getBytes(StandardCharsets.UTF_8)));
            int code = run(words[0], Arrays.copyOfRange(words, 2, words.length));
            System.out.flush();
            System.err.flush();
            answers.println(code + "\t" + encoder.encodeToString(out.buffer.get().toByteArray())
                + "\t" + encoder.encodeToString(err.buffer.get().toByteArray()));
            answers.flush();
        }
    }
}

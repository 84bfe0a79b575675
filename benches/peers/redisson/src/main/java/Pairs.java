import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.TimeUnit;
import java.util.stream.IntStream;
import org.redisson.Redisson;
import org.redisson.api.RPermitExpirableSemaphore;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/**
 * Acquires and releases permits of Redisson's RPermitExpirableSemaphore, with room for all. Each
 * line of standard input says how many tasks do how many pairs each; a line answers when they have.
 */
class Pairs {
    public static void main(String[] arguments) throws Exception {
        Config config = new Config();
        // This crate calls its scripts by their SHA-1, too.
        config.setUseScriptCache(true);
        // The timeout is long, because Redisson repeats a release after a timeout, and the repeated
        // release fails.
        config.useSingleServer().setAddress(arguments[0]).setTimeout(60_000);
        RedissonClient client = Redisson.create(config);
        try {
            serve(client.getPermitExpirableSemaphore(arguments[1]));
        } finally {
            client.shutdown();
        }
    }

    private static void serve(RPermitExpirableSemaphore semaphore) throws Exception {
        semaphore.trySetPermits(1_000_000);
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = input.readLine()) != null; ) {
            String[] words = line.split(" ");
            int tasks = Integer.parseInt(words[0]), pairs = Integer.parseInt(words[1]);
            CompletableFuture.allOf(IntStream.range(0, tasks)
                    .mapToObj(task -> take(semaphore, pairs).toCompletableFuture())
                    .toArray(CompletableFuture[]::new)).join();
            System.out.println("done");
        }
        semaphore.delete();
    }

    private static CompletionStage<Void> take(RPermitExpirableSemaphore semaphore, int pairs) {
        if (pairs == 0) {
            return CompletableFuture.completedFuture(null);
        }
        return semaphore.acquireAsync(30, TimeUnit.SECONDS)
                .thenCompose(semaphore::releaseAsync)
                .thenCompose(nothing -> take(semaphore, pairs - 1));
    }
}

<?php

// The two connections of the client in semaphore.php: for calls, and for grant messages.

declare(strict_types=1);

namespace RedisSemaphore;

require_once __DIR__ . '/signals.php';

const RESPONSE_SECONDS = 2.0;
const IDLE = 100; // ms: after this time without a reply, the connection is checked before a release

/** Texts of a server, which may contain a password. */
final class Texts
{
    /** Patterns of all passwords. */
    private static array $secrets = [];

    public static function hide(#[\SensitiveParameter] string $secret): void
    {
        if (strlen($secret) >= 4) { // A shorter password is part of many words, such as the codes of errors.
            $byte = fn ($byte) => '(?:' . preg_quote($byte, '/') . '|%' . bin2hex($byte) . ')';
            // A pattern for a long password would be too large, so it has several patterns.
            $parts = str_split($secret, (int) ceil(strlen($secret) / ceil(strlen($secret) / 500)));
            foreach ($parts as $part) {
                self::$secrets[$part] = '/' . implode(array_map($byte, str_split($part))) . '/i';
            }
        }
    }

    /** Returns a text without the arguments of a command and without passwords, with at most 500 characters. */
    public static function shown(string $text): string
    {
        // The extension ends some texts with a NUL character or a line feed.
        $text = trim(preg_replace(self::$secrets, '***', explode(', with args beginning with', $text)[0]));
        if (preg_match('/^NOAUTH|unauthenticated (multi)?bulk/', $text) === 1) {
            $text .= ': the server requires a password, as in redis://:PASSWORD@HOST';
        }
        return strlen($text) <= 500 ? $text : substr($text, 0, 500) . '...';
    }
}

/** The user name and password of a URL. A dump of an object, for example by var_export, shows no static properties. */
final class Login
{
    private static \WeakMap $words;

    public function __construct(#[\SensitiveParameter] string ...$words)
    {
        self::$words ??= new \WeakMap();
        self::$words[$this] = $words;
    }

    /** Returns the arguments of AUTH, or no words if the URL has no password. */
    public function words(): array
    {
        return self::$words[$this];
    }
}

/** Returns the result of $connect. If it fails, PHP gives the causes, such as a wrong certificate, only in warnings. */
function connecting(callable $connect): mixed
{
    $causes = [];
    set_error_handler(function (int $level, string $cause) use (&$causes) {
        $causes[] = $cause;
        return true;
    });
    try {
        $connection = $connect();
    } catch (\RedisException $error) {
        $causes[] = $error->getMessage();
    } finally {
        restore_error_handler();
    }
    return ($connection ?? false) ?: throw new ConnectionError('cannot connect: ' . implode(', ', $causes));
}

/**
 * Returns host, port, whether the connection uses TLS, the login, and the database. Throws if a part of the
 * URL is wrong or would be ignored. The error does not contain any part, because each may be a piece of a password.
 */
function parseUrl(#[\SensitiveParameter] string $url): array
{
    // This matches any text. The password may contain all characters, so the last @ is its end.
    preg_match('~\A(?:(\w*)://)?(?:(.*)@)?([^/?#]*?)(?::([^:/?#\]]*))?(/[^?#]*)?([?#].*)?\z~s', $url, $parts);
    [, $scheme, $login, $host, $port, $path, $rest] = $parts + array_fill(0, 7, '');
    [$user, $password] = explode(':', $login, 2) + ['', ''];
    $wrong = match (true) {
        $url === '' => 'is empty',
        preg_match('/[\s\x00-\x1f\x7f]/', $url) === 1 => 'contains white space (in a password, write a space as %20)',
        !in_array($scheme, ['redis', 'rediss'], true) => 'does not begin with redis:// or rediss://',
        strpbrk($login, '/?#') !== false => 'has a user name or password that cannot be read: write the characters '
            . '/ ? # @ : % of a user name or password as %2F %3F %23 %40 %3A %25',
        $user !== '' && $password === '' => 'has a user name without a password',
        preg_match('/\A([^\[\]:,]+|\[[^\[\],]+\])\z/', $host) !== 1
            => 'has no host, or a wrong host: name one server, and write an IPv6 address in brackets, as in redis://[::1]:6379',
        preg_match('/\A[0-9]*\z/', $port) !== 1 || ($port !== '' && ((int) $port < 1 || (int) $port > 65_535))
            => 'has a port that is not a number from 1 to 65535',
        preg_match('#\A/?[0-9]{0,9}\z#', $path) !== 1 => 'has a path that is not the number of a database',
        $rest !== '' => 'has a part after ? or #, but options of a URL are not supported',
        default => null,
    };
    if ($wrong !== null) {
        throw new \InvalidArgumentException(
            "the URL $wrong. It must be redis://[[USER]:PASSWORD@]HOST[:PORT][/DATABASE], or rediss://... for TLS");
    }
    $auth = array_map(rawurldecode(...), array_values(array_filter([$user, $password], strlen(...))));
    Texts::hide((string) end($auth));
    return [
        'host' => trim($host, '[]'),
        'port' => $port === '' ? 6379 : (int) $port,
        'tls' => $scheme === 'rediss',
        'login' => new Login(...$auth),
        'database' => (int) trim($path, '/'),
    ];
}

/** Calls scripts by their SHA-1. If the server does not know a script, this sends its source. */
final class Scripts
{
    private static ?array $all = null;
    private ?\Redis $redis = null;
    /** The process that connected. */
    private ?int $pid = null;
    /** The number of connections so far. */
    public int $made = 0;
    /** The time of the last reply. */
    private int $repliedAt = 0;

    /** $server: the result of parseUrl */
    public function __construct(public readonly array $server)
    {
        self::$all ??= array_column(
            json_decode(file_get_contents(__DIR__ . '/../../lua/manifest.json'), true, flags: JSON_THROW_ON_ERROR)['scripts'],
            null,
            'name',
        );
    }

    public function call(string $name, array $keys, array $arguments): mixed
    {
        $script = self::$all[$name];
        try {
            return $this->command('EVALSHA', $script['sha1'], count($keys), ...$keys, ...$arguments);
        } catch (CommandError $error) {
            if (!str_starts_with($error->getMessage(), 'NOSCRIPT ')) {
                throw $error;
            }
            return $this->command('EVAL', $script['source'], count($keys), ...$keys, ...$arguments);
        }
    }

    public function command(string $command, string|int ...$arguments): mixed
    {
        if ($this->pid !== getmypid()) {
            // A forked child needs its own connection. On its parent's connection, replies would be mixed up.
            $this->disconnect();
            $this->pid = getmypid();
        }
        try {
            $this->redis ??= $this->connect();
            $this->redis->clearLastError();
            $reply = $this->redis->rawCommand($command, ...$arguments);
            // The extension returns null if the connection is closed after the first byte of a reply.
            $error = $this->redis->getLastError() ?? ($reply === null ? 'the reply is incomplete' : null);
        } catch (\RedisException $exception) { // The extension throws some errors of the server, and returns others.
            $error = $exception->getMessage();
        }
        if ($error === null) {
            $this->repliedAt = now();
            return $reply;
        }
        if (preg_match('/^[A-Z_]+ /', $error) === 1) {
            throw new CommandError($error);
        }
        $this->disconnect();
        throw new ConnectionError($error);
    }

    /** Notices that the server or a proxy has closed an idle connection. The next command connects again. */
    public function check(): void
    {
        if ($this->redis !== null && now() - $this->repliedAt > IDLE) {
            try {
                $this->command('PING');
            } catch (ConnectionError | CommandError) { // After an error of the server, the connection is used again.
            }
        }
    }

    /** Disconnects. The next command connects again. */
    public function disconnect(): void
    {
        $this->redis = null;
    }

    private function connect(): \Redis
    {
        $to = $this->server;
        $redis = new \Redis();
        $host = ($to['tls'] ? 'tls://' : '') . $to['host'];
        // PHP would expect a certificate with the brackets of an IPv6 address.
        $context = $to['tls'] ? [['stream' => ['peer_name' => $to['host']]]] : [];
        connecting(fn () => $redis->connect(
            $host, $to['port'], RESPONSE_SECONDS, null, 0, RESPONSE_SECONDS, ...$context));
        $redis->setOption(\Redis::OPT_MAX_RETRIES, 0); // Otherwise, it reconnects without notice.
        $auth = $to['login']->words();
        if (($auth !== [] && !$redis->auth($auth))
            || ($to['database'] !== 0 && !$redis->select($to['database']))) {
            $error = $redis->getLastError();
            throw $error === null ? new ConnectionError("no reply from $host") : new CommandError($error);
        }
        $this->made++;
        return $redis;
    }
}

/** Subscribes to a channel over a plain socket, because the extension's subscribe blocks without a timeout. */
final class Listener
{
    private $stream;
    private string $received = '';
    private bool $pinged = false;

    /** Returns when the server has confirmed the subscription. $to: the result of parseUrl */
    public function __construct(array $to, string $channel, string $subscribe = 'SUBSCRIBE')
    {
        $host = str_contains($to['host'], ':') ? "[$to[host]]" : $to['host']; // an IPv6 address
        $address = ($to['tls'] ? 'tls://' : 'tcp://') . "$host:$to[port]";
        $context = stream_context_create(['ssl' => ['peer_name' => $to['host']]]);
        $this->stream = connecting(
            fn () => stream_socket_client($address, timeout: RESPONSE_SECONDS, context: $context));
        stream_set_blocking($this->stream, false);
        stream_set_read_buffer($this->stream, 0);
        $auth = $to['login']->words();
        if ($auth !== []) {
            $this->send('AUTH', ...$auth);
        }
        if ($to['database'] !== 0) {
            // Channels do not depend on the database, but CLIENT LIST shows the database.
            $this->send('SELECT', (string) $to['database']);
        }
        $this->send($subscribe, $channel);
        $until = now() + (int) (1000 * RESPONSE_SECONDS);
        do {
            $reply = $this->read($until) ?? throw new ConnectionError("no reply from $address");
        } while ($reply === 'OK');
        if (!is_array($reply)) {
            throw new CommandError("the reply to $subscribe is not of a Redis server");
        }
    }

    public function __destruct()
    {
        if (is_resource($this->stream)) {
            fclose($this->stream);
        }
    }

    /** Returns the next message, or null if none arrives before this time. */
    public function next(int $until): ?string
    {
        do {
            try {
                $reply = $this->read($until);
            } catch (CommandError $error) { // The reply to PING.
                throw new ListenerCut($error->getMessage());
            }
        } while ($reply !== null && !in_array(((array) $reply)[0] ?? '', ['message', 'smessage'], true));
        return isset($reply[2]) ? (string) $reply[2] : null;
    }

    /** Detects a dead connection, which otherwise looks like a quiet one. Call it regularly. */
    public function check(): void
    {
        if ($this->pinged) {
            throw new ListenerCut('the subscription got no reply to PING');
        }
        $this->send('PING');
        $this->pinged = true;
    }

    private function send(#[\SensitiveParameter] string ...$words): void
    {
        $text = '*' . count($words) . "\r\n";
        foreach ($words as $word) {
            $text .= '$' . strlen($word) . "\r\n$word\r\n";
        }
        // These few bytes fit into the buffer of the socket.
        if (@fwrite($this->stream, $text) !== strlen($text)) {
            throw new ListenerCut('the connection of the subscription was closed');
        }
    }

    private function read(int $until): mixed
    {
        while (true) {
            $at = 0;
            if ($this->parse($at, $reply)) {
                $this->received = substr($this->received, $at);
                return $reply;
            }
            $text = @fread($this->stream, 65536);
            if ($text === false || ($text === '' && feof($this->stream))) {
                throw new ListenerCut('the connection of the subscription was closed');
            }
            if ($text !== '') {
                $this->pinged = false;
                $this->received .= $text;
                continue;
            }
            $left = $until - now();
            if ($left <= 0) {
                return null;
            }
            [$read, $write, $except] = [[$this->stream], null, null];
            // A signal makes this fail. The loop then checks the time again.
            @stream_select($read, $write, $except, intdiv($left, 1000), $left % 1000 * 1000);
            Signals::dispatch();
        }
    }

    /** Parses the reply at $at, and moves $at to its end. Returns false if a part is still missing. */
    private function parse(int &$at, #[\SensitiveParameter] mixed &$reply): bool
    {
        $end = strpos($this->received, "\r\n", $at);
        if ($end === false) {
            return false;
        }
        $kind = $this->received[$at];
        $reply = substr($this->received, $at + 1, $end - $at - 1);
        $at = $end + 2;
        if ($kind === '-') {
            throw new CommandError($reply);
        }
        if ($kind === '$') {
            $size = max((int) $reply, 0); // -1: no value
            $reply = substr($this->received, $at, $size);
            $at += $size + 2;
            return $at <= strlen($this->received);
        }
        if ($kind === '*') {
            [$count, $reply] = [(int) $reply, []];
            for ($i = 0; $i < $count; $i++) {
                if (!$this->parse($at, $reply[$i])) {
                    return false;
                }
            }
        }
        return true;
    }
}

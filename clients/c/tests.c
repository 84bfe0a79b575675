/* Tests that only C needs, on the server of REDIS_URL. */
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "connection.h"
#include "redis_semaphore.h"
#include "url.h"

/* The beginnings of errors. */
#define NAME "a name must have 1 to 512 bytes of UTF-8, without braces and control characters, not "
#define LEASE "a lease must be a number from 1 to 604800000, not "

/* No server listens on this port. */
#define NOBODY "redis://127.0.0.1:1"

static int failed;

static void expect(bool met, const char *what, const char *found)
{
    if (met)
        return;
    fprintf(stderr, "FAILED: %s: %s\n", what, found);
    failed = 1;
}

static void expect_url(const char *text, const char *user, const char *password, const char *host,
                       int port, int database)
{
    struct redis_url url;
    bool sound = url_parse(&url, text);
    expect(sound == (host != NULL), text, sound ? "is parsed" : "is rejected");
    if (sound && host != NULL) {
        expect(strcmp(url.user, user) == 0, text, url.user);
        expect(strcmp(url.password, password) == 0, text, url.password);
        expect(strcmp(url.host, host) == 0, text, url.host);
        expect(url.port == port && url.database == database, text, "port or database");
    }
    url_free(&url);
}

static void test_urls(void)
{
    static const char *const wrong[] = {
        "",           "http://h",     "rediss://h",   "redis://",       "redis://:6379",
        "redis://h:", "redis://h:0",  "redis://h:1x", "redis://h:65536", "redis://h/x",
        "redis://h/1/2", "redis://h/99999999999", "redis://:%4@h", "redis://:%@h", "redis://:%zz@h",
        "redis://:a%00@h", "redis://word@h", "redis://[::1", "redis://[::1]x", "redis://h/-1",
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        expect_url(wrong[i], NULL, NULL, NULL, 0, 0);
    expect_url("redis://h", "", "", "h", 6379, 0);
    expect_url("redis://h/", "", "", "h", 6379, 0);
    expect_url("redis://u:p@h:1/2", "u", "p", "h", 1, 2);
    expect_url("redis://:a%41%2f%40:%c3%a4@h/7", "", "aA/@:\xc3\xa4", "h", 6379, 7);
    expect_url("redis://u:p@[::1]:65535", "u", "p", "::1", 65535, 0);

    /* Lengths near the size of a fixed buffer. */
    for (int length = 250; length < 260; length++) {
        char text[600], password[300];
        memset(password, 'a', (size_t)length);
        snprintf(password + length, sizeof password - (size_t)length, "A");
        snprintf(text, sizeof text, "redis://:%.*s%%41@h", length, password);
        expect_url(text, "", password, "h", 6379, 0);
    }
}

static void expect_status(const char *what, const char *name, int64_t lease_ms, int64_t timeout_ms,
                          int cancel_fd, enum rsem_status status, const char *error)
{
    struct rsem_permit permit;
    struct rsem *sem = rsem_new(NOBODY, name, 1, lease_ms);
    int64_t since = now_ms();
    enum rsem_status found = rsem_acquire(sem, timeout_ms, cancel_fd, &permit);
    expect(found == status, what, rsem_error(sem));
    expect(strncmp(rsem_error(sem), error, strlen(error)) == 0, what, rsem_error(sem));
    /* The release takes 2 s. */
    expect(now_ms() - since < 10000, what, "it took too long");
    rsem_free(sem);
}

static void expect_url_error(const char *url, const char *found)
{
    struct rsem_permit permit;
    struct rsem *sem = rsem_new(url, "n", 1, 1000);
    expect(rsem_try_acquire(sem, &permit) == RSEM_ERROR, url, "is used");
    expect(strstr(rsem_error(sem), found) != NULL, url, rsem_error(sem));
    expect(strstr(rsem_error(sem), "sec") == NULL, url, rsem_error(sem));
    rsem_free(sem);
}

static int64_t connection_id(struct connection *connection)
{
    const char *words[] = {"CLIENT", "ID"};
    redisReply *reply = connection_command(connection, 2, words);
    int64_t id = reply != NULL ? reply->integer : -1;
    if (reply != NULL)
        freeReplyObject(reply);
    return id;
}

/* On a shared connection, each process would read the other's replies. */
static void test_fork(void)
{
    const char *url = getenv("REDIS_URL");
    struct connection connection;
    int status;
    if (!connection_init(&connection, url != NULL ? url : "redis://127.0.0.1"))
        exit(1);
    int64_t id = connection_id(&connection);
    pid_t child = fork();
    if (child == 0) {
        int64_t own = connection_id(&connection);
        _exit(own > 0 && own != id ? 0 : 1);
    }
    waitpid(child, &status, 0);
    expect(status == 0, "a forked child", "uses the connection of its parent");
    expect(id > 0 && connection_id(&connection) == id, "the parent of a fork", connection.error);
    connection_end(&connection);
}

/* Returns a socket on which a server of this test listens, and writes its URL. */
static int listen_on(char *url, size_t size)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    int listening = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(listening, (struct sockaddr *)&address, length) != 0 || listen(listening, 8) != 0 ||
        getsockname(listening, (struct sockaddr *)&address, &length) != 0)
        exit(1);
    snprintf(url, size, "redis://127.0.0.1:%d", ntohs(address.sin_port));
    return listening;
}

/* After each call, the server has more work, but wake fails. */
static void serve_without_wake(int listening, const char *failure)
{
    for (;;) {
        char command[4096];
        ssize_t size;
        int client = accept(listening, NULL, NULL);
        while ((size = read(client, command, sizeof command - 1)) > 0) {
            const char *answer = failure;
            command[size] = '\0';
            if (strstr(command, "declare") != NULL)
                answer = strstr(command, "{refused}") != NULL
                             ? "-ERR refused\r\n"
                             : "*6\r\n:1\r\n:0\r\n:-1\r\n:1\r\n:7\r\n:8\r\n";
            else if (strstr(command, "return") != NULL)
                answer = "*3\r\n:1\r\n:0\r\n:1\r\n";
            if (write(client, answer, strlen(answer)) < 0)
                _exit(1);
        }
        close(client);
    }
}

/* A failure of wake neither changes a successful reply, nor takes long. */
static void test_failing_wake(const char *failure)
{
    char url[64];
    struct rsem_permit permit;
    int listening = listen_on(url, sizeof url);
    pid_t server = fork();
    if (server == 0)
        serve_without_wake(listening, failure);
    int64_t since = now_ms();
    struct rsem *granted = rsem_new(url, "granted", 1, 30000);
    struct rsem *refused = rsem_new(url, "refused", 1, 30000);
    expect(rsem_acquire(granted, 300, -1, &permit) == RSEM_OK, "acquire, and wake fails", rsem_error(granted));
    expect(rsem_release(refused, &permit) == RSEM_ERROR && strstr(rsem_error(refused), "another") != NULL,
           "release of another semaphore's permit", rsem_error(refused));
    expect(rsem_release(granted, &permit) == RSEM_OK, "release, and wake fails", rsem_error(granted));
    rsem_free(granted); /* The server takes one connection at a time. */
    expect(rsem_acquire(refused, 300, -1, &permit) == RSEM_ERROR, "a rejected request", "returned a permit");
    expect(strcmp(rsem_error(refused), "ERR refused") == 0, "refused", rsem_error(refused));
    expect(now_ms() - since < 10000, "an acquire, and wake fails", "it took too long");
    rsem_free(refused);
    kill(server, SIGKILL);
    waitpid(server, NULL, 0);
    close(listening);
}

/* The server closes the connection and ends. A later write causes SIGPIPE. */
static void test_cut(void)
{
    char url[64], ignored[256];
    const char *words[] = {"PING"};
    struct connection connection;
    sigset_t signals;
    int listening = listen_on(url, sizeof url);
    pid_t server = fork();
    if (server == 0) {
        struct linger none = {.l_onoff = 1};
        int client = accept(listening, NULL, NULL);
        if (read(client, ignored, sizeof ignored) < 0 || write(client, "+PONG\r\n", 7) < 0)
            _exit(1);
        shutdown(client, SHUT_WR);
        setsockopt(client, SOL_SOCKET, SO_LINGER, &none, sizeof none);
        _exit(0);
    }
    if (!connection_init(&connection, url))
        exit(1);
    redisReply *reply = connection_command(&connection, 1, words);
    expect(reply != NULL, "a server that ends soon", connection.error);
    freeReplyObject(reply);
    waitpid(server, NULL, 0);
    close(listening);
    expect(connection_command(&connection, 1, words) == NULL, "a closed connection", "replies");
    expect(connection_may_pass(&connection), "a closed connection", connection.error);
    sigpending(&signals);
    expect(!sigismember(&signals, SIGPIPE), "SIGPIPE", "is pending");
    pthread_sigmask(SIG_BLOCK, NULL, &signals);
    expect(!sigismember(&signals, SIGPIPE), "SIGPIPE", "stays blocked");
    connection_end(&connection);
}

int main(void)
{
    char name[514] = "";
    int readable[2];
    test_urls();
    test_fork();
    test_failing_wake("-NOPERM no\r\n");
    test_failing_wake("-LOADING no\r\n");
    test_cut();
    memset(name, 'n', 513);
    expect_status("a name of 513 bytes", name, 1000, -1, -1, RSEM_ERROR, NAME "more, as in \"nn");
    expect_status("no name", "", 1000, -1, -1, RSEM_ERROR, NAME "\"\"");
    expect_status("a name in Latin-1", "\xe4", 1000, -1, -1, RSEM_ERROR, NAME "\"\\xe4\"");
    expect_status("braces", "a{b", 1000, -1, -1, RSEM_ERROR, NAME "\"a{b\"");
    expect_status("a line feed", "a\n", 1000, -1, -1, RSEM_ERROR, NAME "\"a\\x0a\"");
    expect_status("no lease", "n", 0, -1, -1, RSEM_ERROR, LEASE "0");
    expect_status("less than no lease", "n", INT64_MIN, -1, -1, RSEM_ERROR, LEASE "-9223372036854775808");
    expect_status("a long lease", "n", 604800001, -1, -1, RSEM_ERROR, LEASE "604800001");
    expect_status("an endless lease", "n", INT64_MAX, -1, -1, RSEM_ERROR, LEASE "9223372036854775807");
    expect_status("an endless timeout", "n", 1000, INT64_MAX, -1, RSEM_ERROR,
                  "a timeout must be a number up to 9007199254740991, not 9223372036854775807");
    expect_url_error("", "not an empty URL");
    expect_url_error("sec", "does not begin with redis://");
    expect_url_error("rediss://:sec@h", "begins with rediss://");
    expect_url_error("redis://:sec", "cannot be read");
    expect_url_error("redis://:sec%@h", "%25");
    expect_status("a timeout while Redis is unavailable", "n", 60000, 300, -1, RSEM_TIMEOUT, "cannot connect");
    if (pipe(readable) != 0 || write(readable[1], "", 1) != 1)
        return 1;
    expect_status("a cancellation while Redis is unavailable", "n", 60000, -1, readable[0], RSEM_CANCELLED, "cannot connect");
    if (failed == 0)
        puts("tests: passed");
    return failed;
}

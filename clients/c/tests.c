/* tests: what is particular to C, without a server. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "connection.h"
#include "redis_semaphore.h"
#include "url.h"

/* Nobody listens there. */
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
    expect(sound == (host != NULL), text, sound ? "is parsed" : "is refused");
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

    /* Lengths around what a fixed buffer might have. */
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
    /* Giving back takes 2 s. */
    expect(now_ms() - since < 10000, what, "it took too long");
    rsem_free(sem);
}

int main(void)
{
    char name[514] = "";
    int readable[2];
    test_urls();
    memset(name, 'n', 513);
    expect_status("a name of 513 bytes", name, 1000, -1, -1, RSEM_ERROR, "a name");
    expect_status("no name", "", 1000, -1, -1, RSEM_ERROR, "a name");
    expect_status("a name in Latin-1", "\xe4", 1000, -1, -1, RSEM_ERROR, "a name");
    expect_status("braces", "a{b", 1000, -1, -1, RSEM_ERROR, "a name");
    expect_status("a line feed", "a\n", 1000, -1, -1, RSEM_ERROR, "a name");
    expect_status("no lease", "n", 0, -1, -1, RSEM_ERROR, "a lease");
    expect_status("less than no lease", "n", INT64_MIN, -1, -1, RSEM_ERROR, "a lease");
    expect_status("a long lease", "n", 604800001, -1, -1, RSEM_ERROR, "a lease");
    expect_status("an endless lease", "n", INT64_MAX, -1, -1, RSEM_ERROR, "a lease");
    expect_status("an endless timeout", "n", 1000, INT64_MAX, -1, RSEM_ERROR, "a timeout");
    expect_status("a timeout while Redis is away", "n", 60000, 300, -1, RSEM_TIMEOUT, "cannot connect");
    if (pipe(readable) != 0 || write(readable[1], "", 1) != 1)
        return 1;
    expect_status("cancelled while Redis is away", "n", 60000, -1, readable[0], RSEM_CANCELLED, "cannot connect");
    if (failed == 0)
        puts("tests: passed");
    return failed;
}

/* vectors FILE...: runs files of lua/vectors on the server of REDIS_URL. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "connection.h"

enum { MAX_ARGUMENTS = 64, MESSAGE_MS = 5000 };

static struct connection connection;

/* The state of the current case. */
static struct listener listener;
static json_t *variables;
static char problem[4096];

static const char *const KEYS[] = {"permits", "queue", "clients", "state"};

static bool fail(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(problem, sizeof problem, format, arguments);
    va_end(arguments);
    return false;
}

static const char *variable(const char *name)
{
    const char *value = json_string_value(json_object_get(variables, name));
    return value != NULL ? value : "";
}

static bool expect(json_t *expected, const redisReply *found);

static bool mismatch(json_t *expected, const redisReply *found)
{
    char *text = json_dumps(expected, JSON_ENCODE_ANY | JSON_COMPACT);
    char *known = json_dumps(variables, JSON_COMPACT);
    if (found->type == REDIS_REPLY_INTEGER)
        fail("found %lld, expected %s of %s", found->integer, text, known);
    else if (found->type == REDIS_REPLY_ARRAY)
        fail("found %zu elements, expected %s of %s", found->elements, text, known);
    else
        fail("found %s, expected %s of %s", found->str != NULL ? found->str : "nothing", text, known);
    free(text);
    free(known);
    return false;
}

static bool expect_elements(json_t *expected, const redisReply *found)
{
    if (found->type != REDIS_REPLY_ARRAY || found->elements != json_array_size(expected))
        return mismatch(expected, found);
    for (size_t i = 0; i < found->elements; i++)
        if (!expect(json_array_get(expected, i), found->element[i]))
            return false;
    return true;
}

static bool expect_number(json_t *expected, const redisReply *found)
{
    char *end = "?";
    int64_t number = found->integer;
    if (found->type == REDIS_REPLY_STRING)
        number = strtoll(found->str, &end, 10);
    if (found->type != REDIS_REPLY_INTEGER && (*end != '\0' || found->len == 0))
        return mismatch(expected, found);

    json_t *is = json_object_get(variables, json_is_object(expected) && json_object_get(expected, "is")
                                                ? json_string_value(json_object_get(expected, "is"))
                                                : "");
    json_t *above = json_object_get(expected, "above"), *from = json_object_get(expected, "from"),
           *save = json_object_get(expected, "save");
    bool matches =
        (!json_is_integer(expected) || number == json_integer_value(expected)) &&
        (is == NULL || number == json_integer_value(is) +
                                     json_integer_value(json_object_get(expected, "plus"))) &&
        (above == NULL ||
         number > json_integer_value(json_object_get(variables, json_string_value(above)))) &&
        (from == NULL || (number >= json_integer_value(from) &&
                          number <= json_integer_value(json_object_get(expected, "to"))));
    if (!matches)
        return mismatch(expected, found);
    if (save != NULL)
        json_object_set_new(variables, json_string_value(save), json_integer(number));
    return true;
}

static bool expect(json_t *expected, const redisReply *found)
{
    const char *text = json_string_value(expected);
    json_t *is = json_object_get(expected, "is");
    if (json_is_array(expected))
        return expect_elements(expected, found);
    if (is != NULL && json_is_string(json_object_get(variables, json_string_value(is))))
        text = variable(json_string_value(is));
    if (text == NULL)
        return expect_number(expected, found);
    if ((found->type != REDIS_REPLY_STRING && found->type != REDIS_REPLY_STATUS) ||
        found->len != strlen(text) || memcmp(found->str, text, found->len) != 0)
        return mismatch(expected, found);
    return true;
}

/* Compares the parts of a text with an array. */
static bool expect_parts(json_t *expected, char *text, const char *separator, const char *inner)
{
    redisReply parts[MAX_ARGUMENTS] = {0}, *pointers[MAX_ARGUMENTS];
    redisReply whole = {.type = REDIS_REPLY_ARRAY, .element = pointers};
    for (char *part; (part = strsep(&text, separator)) != NULL && whole.elements < MAX_ARGUMENTS;) {
        redisReply *one = &parts[whole.elements];
        *one = (redisReply){.type = REDIS_REPLY_STRING, .str = part, .len = strlen(part)};
        if (inner != NULL && whole.elements < json_array_size(expected) &&
            !expect_parts(json_array_get(expected, whole.elements), part, inner, NULL))
            return false;
        pointers[whole.elements++] = one;
    }
    if (inner == NULL)
        return expect_elements(expected, &whole);
    return whole.elements == json_array_size(expected) || mismatch(expected, &whole);
}

/* Sends a command. Its words are strings, or {"is": variable}. NULL: no reply. */
static redisReply *send_words(const char *script, json_t *keys, json_t *list)
{
    static char texts[MAX_ARGUMENTS][32];
    const char *words[MAX_ARGUMENTS];
    int count = 0;
    size_t index;
    json_t *word;
    if (script != NULL) {
        snprintf(texts[0], sizeof texts[0], "%zu", keys != NULL ? json_array_size(keys) : 4);
        words[count++] = texts[0];
        for (size_t i = 0; i < (keys != NULL ? json_array_size(keys) : 4); i++)
            words[count++] =
                variable(keys != NULL ? json_string_value(json_array_get(keys, i)) : KEYS[i]);
    }
    json_array_foreach(list, index, word)
    {
        if (count == MAX_ARGUMENTS) {
            fail("too many arguments");
            return NULL;
        }
        const char *name = json_string_value(json_object_get(word, "is"));
        json_t *value = name != NULL ? json_object_get(variables, name) : word;
        if (json_is_integer(value)) {
            int64_t number =
                json_integer_value(value) + json_integer_value(json_object_get(word, "plus"));
            snprintf(texts[count], sizeof texts[count], "%" PRId64, number);
            words[count] = texts[count];
        } else {
            words[count] = json_string_value(value);
        }
        count++;
    }
    redisReply *reply = script != NULL ? connection_script(&connection, script, count, words)
                                       : connection_command(&connection, count, words);
    if (reply == NULL)
        fail("%s", connection.error);
    return reply;
}

/* Sends a command of these words. */
static redisReply *send_command(int count, const char *words[])
{
    redisReply *reply = connection_command(&connection, count, words);
    if (reply == NULL)
        fail("%s", connection.error);
    return reply;
}

static bool run_call(json_t *step)
{
    const char *error = json_string_value(json_object_get(step, "error"));
    redisReply *reply = send_words(json_string_value(json_object_get(step, "call")),
                                   json_object_get(step, "with_keys"), json_object_get(step, "args"));
    if (reply == NULL)
        return false;
    bool failed = reply->type == REDIS_REPLY_ERROR, good;
    if (failed)
        good = (error != NULL && strncmp(reply->str, error, strlen(error)) == 0) ||
               fail("error %s", reply->str);
    else
        good = error == NULL ? expect(json_object_get(step, "reply"), reply) : fail("a reply instead of an error");
    freeReplyObject(reply);
    return good;
}

static bool run_command(json_t *step)
{
    json_t *expected = json_object_get(step, "reply");
    redisReply *reply = send_words(NULL, NULL, json_object_get(step, "command"));
    if (reply == NULL)
        return false;
    bool good = reply->type == REDIS_REPLY_ERROR ? fail("error %s", reply->str)
                                                 : expected == NULL || expect(expected, reply);
    freeReplyObject(reply);
    return good;
}

static bool expect_members(const char *key, json_t *expected, const redisReply *found)
{
    if (found->type != REDIS_REPLY_ARRAY || found->elements != 2 * json_object_size(expected))
        return mismatch(expected, found);
    for (size_t i = 0; i < found->elements; i += 2) {
        json_t *value = json_object_get(expected, found->element[i]->str);
        redisReply *its = found->element[i + 1];
        if (value == NULL)
            return fail("%s has %s", key, found->element[i]->str);
        if (!expect(value, its))
            return false;
    }
    return true;
}

static bool run_keys(json_t *step)
{
    const char *key;
    json_t *expected;
    json_object_foreach(json_object_get(step, "keys"), key, expected)
    {
        const char *range[] = {"ZRANGE", variable(key), "0", "-1", "WITHSCORES"};
        const char *all[] = {"HGETALL", variable(key)};
        bool is_hash = strcmp(key, "state") == 0;
        redisReply *found = send_command(is_hash ? 2 : 5, is_hash ? all : range);
        bool good = found != NULL && expect_members(key, expected, found);
        if (found != NULL)
            freeReplyObject(found);
        if (!good)
            return false;
    }
    return true;
}

static bool run_expires(json_t *step)
{
    const char *key;
    json_t *expected;
    json_object_foreach(json_object_get(step, "expires"), key, expected)
    {
        const char *words[] = {"PTTL", variable(key)};
        redisReply *found = send_command(2, words);
        bool good = found != NULL && expect(expected, found);
        if (found != NULL)
            freeReplyObject(found);
        if (!good)
            return false;
    }
    return true;
}

static bool run_until(json_t *step)
{
    int64_t until = json_integer_value(
        json_object_get(variables, json_string_value(json_object_get(step, "until"))));
    const char *words[] = {"TIME"};
    for (;;) {
        redisReply *time = send_command(1, words);
        if (time == NULL)
            return false;
        int64_t left = until - strtoll(time->element[0]->str, NULL, 10) * 1000 -
                       strtoll(time->element[1]->str, NULL, 10) / 1000;
        freeReplyObject(time);
        if (left <= 0)
            return true;
        nanosleep(&(struct timespec){.tv_sec = left / 1000, .tv_nsec = left % 1000 * 1000000}, NULL);
    }
}

static bool run_listen(json_t *step)
{
    const char *command = json_is_true(json_object_get(step, "sharded")) ? "SSUBSCRIBE" : "SUBSCRIBE";
    const char *channel = variable(json_string_value(json_object_get(step, "listen")));
    return listener_start(&listener, &connection, command, channel) || fail("%s", connection.error);
}

static bool run_message(json_t *step)
{
    redisReply *message;
    if (listener_next(&listener, now_ms() + MESSAGE_MS, -1, &message) != HEARD_MESSAGE)
        return fail("no message arrived");
    bool good = expect_parts(json_object_get(step, "message"), message->element[2]->str, "\n", " ");
    freeReplyObject(message);
    return good;
}

static bool run_step(json_t *step)
{
    static const struct {
        const char *name;
        bool (*run)(json_t *step);
    } kinds[] = {{"call", run_call},       {"command", run_command}, {"keys", run_keys},
                 {"expires", run_expires}, {"until", run_until},     {"listen", run_listen},
                 {"message", run_message}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (json_object_get(step, kinds[i].name) != NULL)
            return kinds[i].run(step);
    return fail("a step of an unknown kind");
}

/* Returns the steps of a case, with its name in place of each @. */
static json_t *steps_of(json_t *vector, const char *name)
{
    char *text = json_dumps(json_object_get(vector, "steps"), JSON_COMPACT), *at = text, *whole;
    size_t size;
    FILE *out = open_memstream(&whole, &size);
    for (; *at != '\0'; at++)
        fprintf(out, *at == '@' ? "%s" : "%.1s", *at == '@' ? name : at);
    fclose(out);
    json_t *steps = json_loads(whole, 0, NULL);
    free(whole);
    free(text);
    return steps;
}

static bool run_case(const char *file, json_t *vector)
{
    unsigned char bytes[16];
    char name[48] = "vector-";
    bool good = getentropy(bytes, sizeof bytes) == 0;
    for (size_t i = 0; i < sizeof bytes; i++)
        snprintf(name + strlen("vector-") + 2 * i, 3, "%02x", bytes[i]);
    variables = json_pack("{s:s, s:o, s:o}", "name", name, "channel",
                          json_sprintf("sem:wake:%s", name), "sharded",
                          json_sprintf("sem:{%s}:wake:%s", name, name));
    for (int i = 0; i < 4; i++)
        json_object_set_new(variables, KEYS[i], json_sprintf("sem:{%s}:%s", name, KEYS[i]));

    size_t index;
    json_t *steps = steps_of(vector, name), *step;
    json_array_foreach(steps, index, step)
    {
        good = good && run_step(step);
        if (!good) {
            fprintf(stderr, "%s: %s: step %zu: %s\n", file,
                    json_string_value(json_object_get(vector, "name")), index + 1, problem);
            break;
        }
    }
    const char *delete[] = {"DEL", variable("permits"), variable("queue"), variable("clients"),
                            variable("state")};
    freeReplyObject(send_command(5, delete));
    listener_end(&listener);
    json_decref(steps);
    json_decref(variables);
    return good;
}

static double server_version(void)
{
    const char *words[] = {"INFO", "server"};
    redisReply *info = send_command(2, words);
    const char *line = info != NULL ? strstr(info->str, "redis_version:") : NULL;
    double version = line != NULL ? strtod(line + strlen("redis_version:"), NULL) : 0;
    if (info != NULL)
        freeReplyObject(info);
    return version;
}

/* If a client changed the text of a script, it would send the whole text with each call. */
static bool server_knows_the_scripts(void)
{
    json_t *manifest = json_load_file(SEM_MANIFEST, 0, NULL), *script;
    bool knows = manifest != NULL;
    size_t index;
    json_array_foreach(json_object_get(manifest, "scripts"), index, script)
    {
        const char *words[] = {"SCRIPT", "EXISTS", json_string_value(json_object_get(script, "sha1"))};
        redisReply *known = send_command(3, words);
        knows = knows && known != NULL && known->elements == 1 && known->element[0]->integer == 1;
        if (known != NULL)
            freeReplyObject(known);
    }
    json_decref(manifest);
    return knows;
}

int main(int argc, char **argv)
{
    int passed = 0, failed = 0;
    const char *url = getenv("REDIS_URL");
    if (!connection_init(&connection, url != NULL ? url : "redis://127.0.0.1"))
        return 1;
    double version = server_version();
    for (int i = 1; i < argc; i++) {
        json_error_t cause;
        json_t *file = json_load_file(argv[i], 0, &cause), *vector;
        size_t index;
        if (file == NULL) {
            fprintf(stderr, "%s: %s\n", argv[i], cause.text);
            failed++;
        }
        json_array_foreach(json_object_get(file, "cases"), index, vector)
        {
            const char *needs = json_string_value(json_object_get(vector, "needs"));
            if (needs != NULL && strtod(needs, NULL) > version)
                continue;
            if (run_case(argv[i], vector))
                passed++;
            else
                failed++;
        }
        json_decref(file);
    }
    if (!server_knows_the_scripts()) {
        fprintf(stderr, "the server does not know all scripts of the manifest\n");
        failed++;
    }
    connection_end(&connection);
    printf("%d cases passed, %d failed\n", passed, failed);
    return failed == 0 && passed > 0 ? 0 : 1;
}

"use strict";

const assert = require("node:assert/strict");
const fs = require("node:fs");
const os = require("node:os");
const path = require("node:path");
const { inspect } = require("node:util");
const { createClient, ErrorReply } = require("redis");
const { version } = require("redis/package.json");

const { SemaphoreClient, Unsupported } = require("../index.js");
const {
  admin, callAcquire, connect, empty, failToSave, keyOf, newName, queued, startPeer, startProxy, startServer, test, until,
} = require("./support.js");

/** Values that have no text, or the text of another value. */
const STRANGE = [Symbol("x"), Object.create(null), { toString: () => "a" }];
const NO_NUMBERS = [NaN, Infinity, "5", null, 5n, 10n ** 400n, 10 ** 300, new Number(5), ...STRANGE];

test("wrong arguments are rejected before the first call", async (t) => {
  const semaphores = await connect(t);
  const name = newName();
  for (const prefix of ["", "{a}", "a b", "a\nb", "\ud800", "x".repeat(201), null, 5, ...STRANGE]) {
    await assert.rejects(SemaphoreClient.connect("redis://127.0.0.1:1", { prefix }), RangeError);
  }
  for (const wrong of ["", "{a}", "a\nb", "\ud800", "x".repeat(513), 5, null, ["a"], ...STRANGE]) {
    assert.throws(() => semaphores.semaphore(wrong, { limit: 1 }), RangeError);
  }
  for (const limit of [-1, 1.5, 2 ** 32, undefined, ...NO_NUMBERS]) {
    assert.throws(() => semaphores.semaphore(name, { limit }), RangeError);
  }
  for (const time of [0, -1, 1.5, 604_800_001, ...NO_NUMBERS]) {
    for (const option of ["lease", "maxHold"]) {
      assert.throws(() => semaphores.semaphore(name, { limit: 1, [option]: time }), RangeError);
    }
    for (const option of ["heartbeatTimeout", "responseTimeout", "outageTolerance"]) {
      await assert.rejects(SemaphoreClient.connect("redis://127.0.0.1:1", { [option]: time }), RangeError);
    }
  }
  const semaphore = semaphores.semaphore(name, { limit: 1 });
  for (const weight of [0, -1, 1.5, 2 ** 32, ...NO_NUMBERS]) {
    for (const call of ["acquire", "tryAcquire"]) await assert.rejects(semaphore[call]({ weight }), RangeError);
  }
  const likeSignal = { aborted: false, throwIfAborted() {}, addEventListener() {} };
  for (const signal of [new AbortController(), new EventTarget(), {}, likeSignal, 5, null, false, ...STRANGE]) {
    const noSignal = { name: "TypeError", message: /^signal must be an AbortSignal, got / };
    for (const call of ["acquire", "tryAcquire"]) await assert.rejects(semaphore[call]({ signal }), noSignal);
    await assert.rejects(semaphore.use(() => {}, { signal }), noSignal);
  }
  semaphores.semaphore(name, { limit: 2 }); // No request of the name waits.
  for (const timeout of [604_800_001, ...NO_NUMBERS]) {
    await assert.rejects(semaphore.acquire({ timeout }), RangeError);
  }
  for (const redis of [
    undefined, null, 6379, new URL("redis://127.0.0.1"), createClient(), { ulr: "redis://127.0.0.1" },
    { clientInfoTag: "a" }, { maintNotifications: "auto" }, { maintEndpointType: "auto" },
    { maintRelaxedCommandTimeout: 5 }, { maintRelaxedSocketTimeout: 5 },
    { socket: { host: "127.0.0.1", port: 1, foo: 1 } }, { socket: { prot: 1 } }, { socket: "127.0.0.1" }, { socket: null },
    { url: "redis://127.0.0.1:1", socket: { tls: {} } }, { socket: { tls: { ca: "" } } }, { socket: { tls: 1 } },
  ]) {
    await assert.rejects(SemaphoreClient.connect(redis), TypeError);
  }
  await assert.rejects(SemaphoreClient.connect("redis://127.0.0.1:1", { livenes: 5 }), TypeError);
  assert.throws(() => semaphores.semaphore(name), TypeError);
  assert.throws(() => semaphores.semaphore(name, { limit: 1, leas: 5 }), TypeError);
  await assert.rejects(semaphore.acquire({ timeOut: 5 }), TypeError);
  await assert.rejects(semaphore.acquire(5), TypeError);
  await assert.rejects(semaphore.tryAcquire({ timeout: 5 }), TypeError);
  await assert.rejects(semaphore.use(() => {}, { wait: 5 }), TypeError);
  for (const callback of [undefined, 5, {}]) await assert.rejects(semaphore.use(callback), /callback must be/);
});

test("an option that this client sets itself is rejected, and the error names the alternative", async () => {
  const connectWith = (socket) => SemaphoreClient.connect({ socket: { host: "127.0.0.1", port: 1, ...socket } });
  const messages = {
    connectTimeout: /use responseTimeout/, timeout: /use responseTimeout/, reconnectStrategy: /reconnects by itself/,
    onread: /there is no onread/, readable: /there is no readable/, writable: /there is no writable/,
  };
  for (const [option, message] of Object.entries(messages)) {
    for (const value of [5, false, () => 100]) {
      await assert.rejects(connectWith({ [option]: value }), { name: "TypeError", message });
    }
  }
  await assert.rejects(connectWith({ connectTimeout: undefined }), /ECONNREFUSED/);
});

const isVersion4 = version.startsWith("4.");

test("an option that the installed node-redis ignores is rejected", async (t) => {
  const server = await startServer(t);
  await (await admin(t, server.url))("ACL", "SETUSER", "jobs", "on", ">secret", "+@all", "allkeys", "allchannels");
  let calls = 0;
  const credentials = async () => ((calls += 1), { username: "jobs", password: "secret" });
  const credentialsProvider = { type: "async-credentials-provider", credentials };
  const options = [{ credentialsProvider }, { socket: { keepAliveInitialDelay: 1000 } }, { socket: { socketTimeout: 60_000 } }];
  for (const option of options) {
    const connected = SemaphoreClient.connect({ url: server.url, ...option });
    if (!isVersion4) await (await connected).close();
    else await assert.rejects(connected, { name: "TypeError", message: /requires node-redis 5\.1 or newer, and 4\./ });
  }
  assert.equal(calls > 0, !isVersion4);
});

test("a wrong number in the options of node-redis is rejected before the first call, and 0 is accepted", async (t) => {
  const server = await startServer(t);
  const zeros = { database: 0, commandsQueueMaxLength: 0, pingInterval: 0 };
  const zerosOfSocket = { socketTimeout: 0, keepAliveInitialDelay: 0 };
  const socketOfVersion = isVersion4 ? {} : zerosOfSocket;
  const semaphores = await SemaphoreClient.connect({ url: server.url, ...zeros, socket: socketOfVersion });
  await semaphores.close();
  const rejects = (redis, what) => {
    const message = new RegExp(`^redis\\.${what}( \\(ms\\))? must be an integer from 0 to 2147483647, got `);
    return assert.rejects(SemaphoreClient.connect(redis), { name: "RangeError", message });
  };
  const socket = { host: "127.0.0.1", port: 1 };
  for (const value of [-1, 1.5, 2 ** 31, ...NO_NUMBERS]) {
    for (const option of Object.keys(zeros)) await rejects({ socket, [option]: value }, option);
    for (const option of Object.keys(zerosOfSocket)) await rejects({ socket: { ...socket, [option]: value } }, `socket\\.${option}`);
  }
});

test("no error contains a URL that is passed as another argument", async (t) => {
  const semaphores = await connect(t);
  const url = "redis://:s3cret@127.0.0.1";
  const semaphore = semaphores.semaphore(newName(), { limit: 1 });
  const calls = [
    ...["prefix", "heartbeatTimeout", "responseTimeout"].map((option) => () => SemaphoreClient.connect(url, { [option]: url + " " })),
    ...["limit", "lease", "maxHold"].map((option) => async () => semaphores.semaphore(newName(), { limit: 1, [option]: url })),
    ...["weight", "timeout"].map((option) => () => semaphore.acquire({ [option]: url })),
    async () => semaphores.semaphore(`${url}{`, { limit: 1 }),
  ];
  for (const call of calls) {
    await assert.rejects(call, (error) => error instanceof RangeError && !/s3cret/.test(inspect(error)));
  }
});

test("pings of node-redis do not end the subscription", async (t) => {
  const server = await startServer(t);
  const send = await admin(t, server.url);
  const semaphores = await SemaphoreClient.connect({ url: server.url, pingInterval: 20 });
  t.after(() => semaphores.close());
  const subscriber = async () => /^id=\d+ /.exec(await send("CLIENT", "LIST", "TYPE", "pubsub"))?.[0];
  const before = await subscriber();
  const pings = async () => Number(/cmdstat_ping:calls=(\d+)/.exec(await send("INFO", "commandstats"))?.[1] ?? 0);
  await until("some pings", async () => (await pings()) > 5);
  assert.equal(await subscriber(), before);
});

/** The rights of the user in docs/production.md, without the password. */
function documentedRights() {
  const text = fs.readFileSync(path.join(__dirname, "../../../docs/production.md"), "utf8");
  const [, rights] = /ACL SETUSER jobs on >secret (~sem:\{\* resetchannels &sem:wake:\*[^`]*)/.exec(text);
  return rights.trim().split(/\s+/);
}

test("the documented rights are sufficient: no command is denied, and an error names a missing right", async (t) => {
  const server = await startServer(t);
  const [name, send] = [newName(), await admin(t, server.url)];
  const url = server.url.replace("//", "//jobs:secret@");
  await assert.rejects(SemaphoreClient.connect(url), /WRONGPASS/);
  await send("ACL", "SETUSER", "jobs", "on", ">secret", ...documentedRights());
  await send("ACL", "LOG", "RESET");
  const denied = async () => (await send("ACL", "LOG")).map((entry) => entry.map(String).slice(0, 10));

  const semaphores = await SemaphoreClient.connect({ url, pingInterval: 50 }, { heartbeatTimeout: 600 });
  t.after(() => semaphores.close());
  const semaphore = semaphores.semaphore(name, { limit: 1, lease: 6000 });
  const permit = await semaphore.acquire();
  const waits = [semaphore.acquire(), semaphore.acquire()];
  await queued(send, name, 2);
  const end = async () => Number(await send("ZSCORE", keyOf(name, "permits"), permit.id));
  const first = await end();
  await until("it was refreshed, and has asked again", async () => (await end()) > first);
  await send("CLIENT", "KILL", "USER", "jobs");
  await callAcquire(send, newName(), `N:dead:1:100:${"n".repeat(16)}`);
  await permit.release();
  for (const wait of waits) await (await wait).release();
  await empty(send, name);
  assert.deepEqual(await denied(), []);
});

test("if any documented right is missing, connecting fails with an error that names it", async (t) => {
  const server = await startServer(t);
  const [send, rights] = [await admin(t, server.url), documentedRights()];
  const url = server.url.replace("//", "//jobs:secret@");
  const named = { "~": "key", "&": "channel" };
  for (const missing of rights) {
    if (["resetchannels", "+script|load"].includes(missing)) continue; // Only the Rust client calls SCRIPT LOAD.
    const others = rights.filter((right) => right !== missing);
    await send("ACL", "SETUSER", "jobs", "reset", "resetchannels", "on", ">secret", ...others);
    const error = await SemaphoreClient.connect(url).catch((error) => error);
    assert.ok(error instanceof Unsupported, `${missing}: ${inspect(error)}`);
    const text = new RegExp(`lacks a right, or the server does not know a command: 127\\.0\\.0\\.1:${server.port}, .*${named[missing[0]] ?? missing.slice(1).split("|")[0]}`, "i");
    assert.match(error.message, text);
    assert.ok(error.cause instanceof ErrorReply);
  }
  await send("ACL", "SETUSER", "jobs", "reset", "on", ">secret", ...rights);
  await (await SemaphoreClient.connect(url)).close();
});

/** Servers that do not know the commands with a password, and quote the arguments of such a command in the error. */
const NO_AUTH = ["--rename-command", "AUTH", "", "--rename-command", "HELLO", ""];
const withSecret = (url) => url.replace("//", "//bob:SeCrEt@");

/** Returns everything that a log of this error may contain. */
const printed = (error) => inspect(error, { depth: null, showHidden: true });

test("no error and no warning contains the password if the server does not know AUTH", async (t) => {
  const server = await startServer(t, NO_AUTH);
  for (const url of [withSecret(server.url), server.url.replace("//", "//:SeCrEt@")]) {
    const error = await SemaphoreClient.connect(url).catch((error) => error);
    assert.match(error.message, /unknown command .AUTH.$/);
    assert.ok(error.cause instanceof ErrorReply);
    assert.doesNotMatch(printed(error), /SeCrEt/);
  }

  const [first, target] = [await startServer(t), {}];
  await (await admin(t, first.url))("ACL", "SETUSER", "bob", "on", ">SeCrEt", "~*", "&*", "+@all");
  target.port = first.port;
  const proxy = await startProxy(t, target);
  const client = await connect(t, { url: withSecret(proxy.url) });
  const semaphore = client.semaphore(newName(), { limit: 1, lease: 5000 });
  const permit = await semaphore.acquire();
  const waits = [semaphore.acquire(), semaphore.acquire({ timeout: 60_000 })];
  const warnings = [];
  const listen = (warning) => warnings.push(warning);
  process.on("warning", listen);
  t.after(() => process.off("warning", listen));
  target.port = server.port;
  for (const { client } of proxy.links) client.destroy();
  const failures = waits.map((wait) => wait.catch((error) => error));
  const released = permit.release().catch((error) => error);
  const errors = await Promise.all([...failures, released, semaphore.tryAcquire().catch((error) => error)]);
  await until("a warning", () => warnings.length > 0);
  for (const error of [...errors, ...warnings]) {
    assert.match(error.message, /unknown command .AUTH.$/);
    assert.doesNotMatch(printed(error), /SeCrEt/);
  }
});

test("no error contains the password if a peer repeats what it gets, and the text of the peer is limited", async (t) => {
  const password = "/SeCrEt\\$@ä";
  const words = (command) => command.split("\r\n").slice(2).filter((_, number) => number % 2 === 0).join(" ");
  const replies = [
    (command) => `-ERR unsupported command: ${words(command)}\r\n`,
    (command) => `-ERR unsupported command: ${encodeURIComponent(words(command))}\r\n`,
    (command) => `-ERR unsupported command: ${encodeURI(words(command))} ${JSON.stringify(words(command))}\r\n`,
    (command) => `-unsupported ${words(command)}\r\n`,
    (command) => (/AUTH/.test(command) ? "+OK\r\n" : `-ERR ${encodeURIComponent(password)} ${"x".repeat(5000)}\r\n`),
    (command) => command,
  ];
  for (const reply of replies) {
    const { port } = await startPeer(t, reply);
    for (const credentials of [`bob:${encodeURIComponent(password)}`, encodeURIComponent(password)]) {
      const url = `redis://${credentials}@127.0.0.1:${port}`;
      const error = await SemaphoreClient.connect(url, { responseTimeout: 500 }).catch((error) => error);
      assert.ok(error instanceof Error && error.code.startsWith("SEM_"), inspect(error));
      assert.doesNotMatch(printed(error), /SeCrEt/);
      assert.ok(error.message.length < 700, error.message);
    }
  }
});

test("a reply of an unexpected type has a clear error", async (t) => {
  const ok = (command) => {
    if (/HELLO/i.test(command)) return "-ERR unknown command\r\n";
    const channel = /subscribe\r\n\$\d+\r\n(\S+)/i.exec(command)?.[1];
    return channel && `*3\r\n$9\r\nsubscribe\r\n$${channel.length}\r\n${channel}\r\n:1\r\n`;
  };
  for (const reply of ["+OK\r\n", "$-1\r\n", ":1\r\n", "*2\r\n:1\r\n$-1\r\n"]) {
    const { port } = await startPeer(t, (command) => ok(command) ?? (/PING/i.test(command) ? "+PONG\r\n" : reply));
    const message = /^connect was rejected: 127\.0\.0\.1:\d+, probe: the reply is not of a Redis server/;
    await assert.rejects(SemaphoreClient.connect(`redis://127.0.0.1:${port}`), { name: "Rejected", message });
  }
});

const notRedis = /127\.0\.0\.1:\d+, \w+: the reply is not of a Redis server: .*Check the host and the port/;

test("a peer of another protocol does not end the process, and the error names its address", async (t) => {
  const subscribed = "*3\r\n$9\r\nsubscribe\r\n$1\r\nx\r\n:1\r\n";
  // Replies of several lines reach node-redis before it has sent as many commands.
  const replies = ["+OK", "+OK\r\n+OK\r\n+OK", "*1\r\n:1\r\n".repeat(3), subscribed.repeat(3), "HTTP/1.1 400 Bad Request"];
  for (const name of [undefined, "IP:127.0.0.1"]) {
    const peer = await startPeer(t, () => peer.reply, name);
    for (const credentials of ["", ":secret@"]) {
      for (const reply of replies) {
        Object.assign(peer, { greeting: reply === "+OK" ? "+OK POP3 ready\r\n" : "", reply: `${reply.trim()}\r\n` });
        const url = `${name ? "rediss" : "redis"}://${credentials}127.0.0.1:${peer.port}`;
        const error = await SemaphoreClient.connect({ url, socket: { ca: peer.ca } }, { responseTimeout: 1000 }).catch((error) => error);
        assert.match(error.code, /^SEM_(UNAVAILABLE|REJECTED)$/, inspect(error));
        // node-redis 4 ignores text of another protocol.
        const silence = isVersion4 && reply.startsWith("HTTP") && /127\.0\.0\.1:\d+, \w+: no reply/.test(error.message);
        if (!silence) assert.match(error.message, notRedis);
      }
    }
  }
});

test("a peer of another protocol that replaces a server does not end the process", async (t) => {
  const server = await startServer(t);
  const peer = await startPeer(t, () => "+OK\r\n".repeat(3));
  const target = { port: server.port };
  const proxy = await startProxy(t, target);
  const semaphore = (await connect(t, { url: proxy.url, responseTimeout: 500 })).semaphore(newName(), { limit: 1 });
  target.port = peer.port;
  for (const { client } of proxy.links) client.destroy();
  await assert.rejects(semaphore.tryAcquire(), { code: "SEM_UNAVAILABLE", message: notRedis });
  target.port = server.port;
  await (await semaphore.acquire()).release();
});

test("an error of a credentials provider has a code and the address", async (t) => {
  if (isVersion4) return; // It has no credentials providers.
  const server = await startServer(t);
  const credentials = async () => {
    throw new TypeError("fetch failed"); // As fetch does.
  };
  const credentialsProvider = { type: "async-credentials-provider", credentials };
  const message = new RegExp(`127\\.0\\.0\\.1:${server.port}, connecting: redis.credentialsProvider has failed, .*fetch failed`);
  await assert.rejects(SemaphoreClient.connect({ url: server.url, credentialsProvider }), { code: "SEM_UNAVAILABLE", message });
});

test("the text of a failed connection is one line, and it is never empty", async (t) => {
  const { port } = await startPeer(t, () => "+OK\r\n");
  const tls = await SemaphoreClient.connect(`rediss://127.0.0.1:${port}`).catch((error) => error);
  assert.match(tls.message, new RegExp(`^connect has failed: 127\\.0\\.0\\.1:${port}, connecting: .*\\S$`));
  // Node.js reports an error without a text if a host has several addresses.
  const addresses = ["127.0.0.1", "127.0.0.2"].map((address) => ({ address, family: 4 }));
  const lookup = (host, { all }, callback) => (all ? callback(null, addresses) : callback(null, "127.0.0.1", 4));
  const connected = SemaphoreClient.connect({ socket: { host: "two.test", port: 1, lookup, autoSelectFamily: true } });
  await assert.rejects(connected, { message: /^connect has failed: two\.test:1, connecting: connect ECONNREFUSED 127\.0\.0\.1:1/ });
});

test("an error about an option of a wrong type names the option and the type, but not the value", async () => {
  for (const [value, type] of [[12345, "Number"], [null, "null"], [["s3cret"], "Array"], [{}, "Object"], [true, "Boolean"]]) {
    const socket = { host: "127.0.0.1", port: 1 };
    const rejects = (redis, option) =>
      assert.rejects(SemaphoreClient.connect(redis), { name: "TypeError", message: `redis.${option} must be a string, got ${type}` });
    for (const option of ["url", "username", "password", "name"]) await rejects({ socket, [option]: value }, option);
    for (const option of ["host", "path", "servername", "passphrase"]) {
      await rejects({ socket: { ...socket, [option]: value } }, `socket.${option}`);
    }
  }
  for (const option of ["host", "path"]) {
    const message = new RegExp(`^redis\\.socket\\.${option} is empty`);
    await assert.rejects(SemaphoreClient.connect({ socket: { [option]: "" } }), { name: "TypeError", message });
  }
});

test("the host name of a certificate is checked", async (t) => {
  const connectTo = async (name) => {
    const { ca, port } = await startPeer(t, () => "-ERR refused\r\n", name);
    return SemaphoreClient.connect({ url: `rediss://:secret@127.0.0.1:${port}`, socket: { ca } });
  };
  await assert.rejects(connectTo("IP:127.0.0.1"), { name: "Rejected", message: /refused/ });
  await assert.rejects(connectTo("DNS:other.test"), { name: "Unavailable", message: /127\.0\.0\.1 is not in the cert's list/ });
});

test("the error names a password that the server requires only later", async (t) => {
  const server = await startServer(t);
  const send = await admin(t, server.url);
  const semaphore = (await connect(t, { ...server, responseTimeout: 500 })).semaphore(newName(), { limit: 1 });
  await send("CONFIG", "SET", "requirepass", "secret");
  await send("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes");
  await send("CLIENT", "KILL", "TYPE", "pubsub");
  await assert.rejects(semaphore.tryAcquire(), { name: "Rejected", message: /NOAUTH .*requires a password, in the URL/ });
});

test("connecting fails immediately if no server listens", async (t) => {
  const server = await startServer(t);
  await server.kill();
  await assert.rejects(SemaphoreClient.connect(server.url), /ECONNREFUSED/);
});

test("an error of connecting has a code, and names the address and the step", async (t) => {
  const failsWith = async (redis, code, text, cause = /./) => {
    const error = await SemaphoreClient.connect(redis, { responseTimeout: 300 }).catch((error) => error);
    assert.equal(error.code, code, inspect(error));
    assert.ok(error.message.includes(text), error.message);
    assert.equal(error.operation, code === "SEM_UNSUPPORTED" ? undefined : "connect");
    assert.match(error.cause.message, cause);
    return error.cause;
  };
  const server = await startServer(t);
  const [send, address] = [await admin(t, server.url), `127.0.0.1:${server.port}`];
  const withPassword = server.url.replace("//", "//jobs:secret@");
  const refusal = `connect was rejected: ${address}, connecting: WRONGPASS`;
  await failsWith(withPassword, "SEM_REJECTED", refusal, /^WRONGPASS/);
  await send("ACL", "SETUSER", "jobs", "on", ">secret", "+ping");
  await failsWith(withPassword, "SEM_UNSUPPORTED", `${address}, SUBSCRIBE: NOPERM`);
  await send("ACL", "SETUSER", "jobs", "+subscribe", "allchannels");
  await failsWith(withPassword, "SEM_UNSUPPORTED", `${address}, probe: NOPERM`);
  await send("CONFIG", "SET", "maxclients", "1");
  await failsWith(server.url, "SEM_UNAVAILABLE", `${address}, `, /max number of clients|ECONNRESET|closed/);
  await failsWith(withPassword, "SEM_UNAVAILABLE", `connect has failed: ${address}, connecting: `);
  await server.kill("SIGSTOP");
  await failsWith(server.url, "SEM_UNAVAILABLE", `${address}, HELLO: no reply within 300 ms`);
  await failsWith(withPassword, "SEM_UNAVAILABLE", `${address}, connecting: no reply within 300 ms`);
  await server.kill();
  const refused = await failsWith(server.url, "SEM_UNAVAILABLE", `${address}, connecting: connect ECONNREFUSED`);
  assert.equal(refused.code, "ECONNREFUSED");
  await failsWith({ socket: { host: "[::1]", port: 1 } }, "SEM_UNAVAILABLE", "[::1]:1, connecting: ");
  await failsWith("unix:///nowhere/redis.sock", "SEM_UNAVAILABLE", "/nowhere/redis.sock, connecting: ", /ENOENT/);
});

test("a server that accepts no writes is not unsupported: the error has the address, the step and the cause", async (t) => {
  const server = await startServer(t);
  const send = await admin(t, server.url);
  const fails = async (code, text) => {
    const error = await SemaphoreClient.connect(server.url).catch((error) => error);
    assert.equal(error.code, code, inspect(error));
    const verb = code === "SEM_REJECTED" ? "was rejected" : "has failed";
    assert.match(error.message, new RegExp(`^connect ${verb}: 127.0.0.1:${server.port}, probe${text}`));
    assert.ok(error.cause instanceof ErrorReply);
  };
  const isReplica = "the server is a replica: connect to the primary";
  await send("CONFIG", "SET", "min-replicas-to-write", "3");
  await fails("SEM_UNAVAILABLE", ", PEXPIREAT: .*NOREPLICAS");
  await send("CONFIG", "SET", "min-replicas-to-write", "0");
  await failToSave(send);
  await fails("SEM_REJECTED", ", PEXPIREAT: .*MISCONF");
  await send("CONFIG", "SET", "save", "");
  await send("REPLICAOF", "127.0.0.1", "1");
  await fails("SEM_UNAVAILABLE", `, PEXPIREAT: ${isReplica} .*READONLY`);
  await send("CONFIG", "SET", "replica-serve-stale-data", "no");
  await fails("SEM_UNAVAILABLE", `: ${isReplica} .*MASTERDOWN`);
});

test("a value that no connection can have stays a TypeError or a RangeError", async () => {
  await assert.rejects(SemaphoreClient.connect({ socket: { host: "127.0.0.1", port: 70_000 } }), RangeError);
  await assert.rejects(SemaphoreClient.connect({ socket: { host: "127.0.0.1", port: {} } }), TypeError);
});

const isCluster = { name: "Unsupported", code: "SEM_UNSUPPORTED", message: /is a node of a Redis Cluster/ };
const namesCluster = { ...isCluster, message: /^127\.0\.0\.1:\d+ is a node of a Redis Cluster/ };

test("connecting detects a cluster, even for a user without rights", async (t) => {
  const server = await startServer(t, ["--cluster-enabled", "yes"]);
  const send = await admin(t, server.url);
  await assert.rejects(SemaphoreClient.connect(server.url), namesCluster);
  // With all slots, this node passes the probe.
  await send("CLUSTER", "ADDSLOTS", ...Array(16_384).keys());
  await until("it serves all slots", async () => /cluster_state:ok/.test(await send("CLUSTER", "INFO")));
  await assert.rejects(SemaphoreClient.connect(server.url), namesCluster);
  await send("ACL", "SETUSER", "jobs", "on", ">secret", "+ping");
  await assert.rejects(SemaphoreClient.connect(server.url.replace("//", "//jobs:secret@")), namesCluster);
});

test("the next call detects a cluster that replaces a server", async (t) => {
  const [server, node] = [await startServer(t), await startServer(t, ["--cluster-enabled", "yes"])];
  const target = { port: server.port };
  const proxy = await startProxy(t, target);
  const semaphores = await connect(t, { url: proxy.url, outageTolerance: 300 });
  target.port = node.port;
  for (const { client } of proxy.links) client.destroy();
  await assert.rejects(semaphores.semaphore(newName(), { limit: 1 }).acquire(), isCluster);
});

test("without HELLO, the replies of a cluster node are detected", async (t) => {
  const node = await startServer(t, ["--cluster-enabled", "yes", "--rename-command", "HELLO", "NOT-HELLO"]);
  await assert.rejects(SemaphoreClient.connect(node.url), namesCluster);
  const server = await startServer(t, ["--rename-command", "HELLO", "NOT-HELLO"]);
  await (await (await connect(t, server)).semaphore(newName(), { limit: 1 }).acquire()).release();
});

test("a sentinel is not supported", async (t) => {
  const dir = fs.mkdtempSync(path.join(os.tmpdir(), "node-test."));
  t.after(() => fs.rmSync(dir, { recursive: true }));
  const file = path.join(dir, "sentinel.conf");
  fs.writeFileSync(file, "");
  const sentinel = await startServer(t, ["--sentinel"], [file]);
  const message = /^127\.0\.0\.1:\d+ is a Redis Sentinel/;
  await assert.rejects(SemaphoreClient.connect(sentinel.url), { code: "SEM_UNSUPPORTED", message });
});

test("node-redis creates no AbortSignal for a command", async (t) => {
  const signals = t.mock.method(AbortSignal, "timeout");
  await (await (await connect(t)).semaphore(newName(), { limit: 1 }).acquire()).release();
  assert.equal(signals.mock.callCount(), 0);
});

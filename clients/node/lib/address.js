"use strict";

/**
 * Parses a URL into options of node-redis. The parsers of node-redis differ: IPv6 addresses need version 5, and
 * `unix:` needs version 6.3. No error contains any part of the URL, because any part may be a password.
 */
function parse(url) {
  if (/^unix:/i.test(url)) return parseUnix(url);
  if (!/^rediss?:\/\//i.test(url)) throw refusal("it must begin with redis://, rediss:// or unix:///");
  const { protocol, hostname, port, username, password, pathname } = parts(url);
  const [, database] = /^\/?$|^\/(\d+)$/.exec(pathname) ?? refuse("its path must be the number of a database, as in redis://host/1");
  const socket = { host: hostname.replace(/^\[(.*)\]$/, "$1") };
  if (port) socket.port = Number(port);
  if (protocol === "rediss:") socket.tls = true;
  return { socket, ...credentials(username, password), ...(database && { database: Number(database) }) };
}

function parts(url) {
  let parsed;
  try {
    parsed = new URL(url);
  } catch {
    // The original error has the whole URL as a property.
    throw refusal("it is not like redis://user:password@host:6379/0, or redis://[::1]:6379 with an IPv6 address");
  }
  if (/[?#]/.test(url)) throw refusal("it has a ? or a #. Settings belong in the options of connect");
  if (!parsed.hostname) throw refusal("it has no host. For a server on this machine, write redis://localhost");
  return parsed;
}

function parseUnix(url) {
  const form = /^unix:\/\/(?:([^:@/?#]*)(?::([^@/?#]*))?@)?(\/[^?#@]+)(?:\?db=(\d+))?$/i;
  const [, username = "", password = "", path, database] =
    form.exec(url) ?? refuse("it is not like unix://user:password@/path/to/redis.sock?db=0");
  return {
    socket: { path: decode(path) },
    ...credentials(username, password),
    ...(database && { database: Number(database) }),
  };
}

/** Returns the credentials. A user without a password counts, because the password may come from the options. */
const credentials = (username, password) => ({
  ...(username && { username: decode(username) }),
  ...(password && { password: decode(password) }),
  ...((username || password) && { credentialsProvider: undefined }),
});

function decode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    throw refusal("after each % it must have two hexadecimal digits");
  }
}

const HINT = "Write characters of a user name, a password or a path that have a meaning in URLs as %XX (see encodeURIComponent)";

const refusal = (why) => new TypeError(`the URL of Redis cannot be used: ${why}. ${HINT}`);

function refuse(why) {
  throw refusal(why);
}

/** Returns options of node-redis without a URL. Parts of the URL override the other options. */
function resolve({ url, ...options }) {
  if (url === undefined) return { ...options, socket: withoutBrackets(options.socket) };
  const parsed = parse(url);
  const tls = options.socket?.tls;
  if (tls !== undefined && tls !== (parsed.socket.tls ?? false)) {
    throw refusal(`socket.tls is ${tls === true}, and the URL begins with ${tls ? "redis" : "rediss"}:`);
  }
  const { path, ...socket } = options.socket ?? {}; // With a path, node-redis would ignore the host of the URL.
  return { ...options, ...parsed, socket: { ...socket, ...parsed.socket } };
}

const withoutBrackets = (socket) =>
  socket?.host ? { ...socket, host: socket.host.replace(/^\[(.*)\]$/, "$1") } : socket;

/** Returns the address for errors. Its parts contain no password. */
function addressOf({ path, host = "localhost", port } = {}) {
  return path ?? `${host.includes(":") ? `[${host}]` : host}:${port ?? 6379}`;
}

module.exports = { addressOf, resolve };

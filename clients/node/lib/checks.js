"use strict";

const { inspect } = require("node:util");

const { version } = require("redis/package.json");
const { resolve } = require("./address");

const MOST = 2 ** 32 - 1;
const LONGEST = 7 * 24 * 60 * 60 * 1000;

/** Checks an argument before the call, because the server would also reject the other requests of the call. */
function integer(what, value, least, most) {
  if (!Number.isInteger(value) || value < least || value > most) {
    const advice = typeof value === "number" && value > MOST && most === MOST ? ": count in a larger unit" : "";
    throw new RangeError(`${what} must be an integer from ${least} to ${most}, got ${shown(value)}${advice}`);
  }
  return value;
}

const limit = (value) => integer("limit", value, 0, MOST);
const weight = (value) => integer("weight", value, 1, MOST);
const milliseconds = (what, value) => integer(`${what} (ms)`, value, 1, LONGEST);

/** Checks the time until a deadline. This time may have fractions, or be negative. */
function timeout(value) {
  if (typeof value === "number" && value <= LONGEST) return value;
  throw new RangeError(`timeout (ms) must be a number up to ${LONGEST}, got ${shown(value)}`);
}

/** Formats any value, including a symbol and an object without a prototype. Hides a URL with its password. */
function shown(value) {
  const text = inspect(value, { depth: 0, maxStringLength: 600 });
  return text.includes("://") ? "a text with a URL" : text;
}

/** Returns whether the string has at most this many bytes. A lone surrogate has no bytes. */
function hasBytes(value, most) {
  if (typeof value !== "string") return false;
  const bytes = Buffer.from(value);
  return bytes.length <= most && bytes.toString() === value;
}

/** Returns whether this can be a name. Braces and line feeds have a meaning in keys and messages. */
function isName(value) {
  // eslint-disable-next-line no-control-regex
  return hasBytes(value, 512) && /^[^{}\x00-\x1f\x7f]+$/.test(value);
}

function name(value) {
  if (isName(value)) return value;
  throw new RangeError(`name must be 1 to 512 bytes without braces and control characters, got ${shown(value)}`);
}

/** Checks the prefix of keys and channels. Channels contain no white space. */
function prefix(value) {
  // eslint-disable-next-line no-control-regex
  if (!hasBytes(value, 200) || !/^[^{}\s\x00-\x1f\x7f]+$/.test(value)) {
    throw new RangeError(`prefix must be 1 to 200 bytes without braces and white space, got ${shown(value)}`);
  }
  return value;
}

const share = (what, value) => integer(what, value, 1, 1000);
const cap = (what, value, least) => (value === undefined ? undefined : integer(what, value, least, MOST));

/** Returns the name, the share and the cap of a group, for a request with this weight. */
function group(value, weight, { groupShare, groupCap }) {
  if (value === undefined) return undefined;
  if (typeof value !== "string" && (typeof value !== "object" || value === null)) {
    throw new TypeError(`group must be a string or an object with name, share and cap, got ${shown(value)}`);
  }
  const given = typeof value === "string" ? { name: value } : options("group", value, ["name", "share", "cap"]);
  const { name: text, share: itsShare = groupShare, cap: itsCap = groupCap } = given;
  if (typeof text !== "string" || !/^[\w.-]{1,64}$/.test(text)) {
    throw new RangeError(`the name of a group must be 1 to 64 letters, digits, ".", "_" or "-", got ${shown(text)}`);
  }
  share("the share of a group", itsShare);
  cap(`the cap of a group for the weight ${weight}`, itsCap, weight);
  return { name: text, share: itsShare, cap: itsCap };
}

/** Checks a function that receives a permit. */
function callback(value) {
  if (typeof value !== "function") throw new TypeError(`callback must be a function, got ${shown(value)}`);
}

/** Checks the signal that cancels a request. */
function signal(value) {
  if (value === undefined || value instanceof AbortSignal) return;
  throw new TypeError(`signal must be an AbortSignal, got ${shown(value)}`);
}

const describe = (value) => (value === null ? "null" : value?.constructor?.name ?? typeof value);

/** Checks options. A misspelled option, or an object of another kind, would have no effect. */
function options(what, value, known, names = known.join(", ")) {
  const prototype = typeof value === "object" && value !== null ? Object.getPrototypeOf(value) : undefined;
  if (prototype !== null && prototype !== Object.prototype) {
    throw new TypeError(`${what} must be a plain object, got ${describe(value)}`);
  }
  const unknown = Object.keys(value).find((key) => !known.includes(key));
  if (unknown !== undefined) throw new TypeError(`${what}: there is no ${unknown}, but ${names}`);
  return value;
}

/** The options of node-redis 4 to 6 that have an effect with RESP 2 and without CLIENT SETINFO. */
const OF_REDIS = [
  "url", "socket", "username", "password", "credentialsProvider", "name", "database", "commandsQueueMaxLength",
  "pingInterval",
];

/** The socket options of node-redis, net.connect and tls.connect. */
const OF_SOCKET = [
  "tls", "socketTimeout",
  "host", "port", "path", "family", "hints", "lookup", "localAddress", "localPort", "noDelay", "keepAlive", "keepAliveInitialDelay",
  "autoSelectFamily", "autoSelectFamilyAttemptTimeout", "allowHalfOpen", "blockList", "fd", "highWaterMark",
  "signal", "typeOfService",
  "ALPNProtocols", "allowPartialTrustChain", "ca", "cert", "checkServerIdentity", "ciphers", "clientCertEngine", "crl", "dhparam",
  "ecdhCurve", "enableTrace", "honorCipherOrder", "key", "maxVersion", "minDHSize", "minVersion", "passphrase", "pfx",
  "privateKeyEngine", "privateKeyIdentifier", "pskCallback", "rejectUnauthorized", "requestOCSP", "secureContext",
  "secureOptions", "secureProtocol", "servername", "session", "sessionIdContext", "sessionTimeout", "sigalgs", "ticketKeys",
];

/** The socket options that the client sets itself. */
const OURS = {
  connectTimeout: "use responseTimeout in the options of connect",
  timeout: "use responseTimeout in the options of connect",
  reconnectStrategy: "the client reconnects by itself",
};

/** The numbers that node-redis and Node.js do not check before they use them, and their units. */
const NUMBERS = {
  database: "", commandsQueueMaxLength: "", pingInterval: " (ms)", socketTimeout: " (ms)", keepAliveInitialDelay: " (ms)",
};

/** The texts that node-redis and Node.js do not check, or only with an error that does not name the option. */
const TEXTS = ["url", "username", "password", "name", "host", "path", "servername", "passphrase"];

/** The options that node-redis 4 ignores. */
const SINCE_5 = ["credentialsProvider", "keepAliveInitialDelay", "socketTimeout"];

function values(what, given) {
  for (const [key, unit] of Object.entries(NUMBERS)) {
    if (given[key] !== undefined) integer(`${what}.${key}${unit}`, given[key], 0, 2 ** 31 - 1);
  }
  for (const key of TEXTS) {
    // No error contains the value, because it may be a password.
    if (!["string", "undefined"].includes(typeof given[key])) {
      throw new TypeError(`${what}.${key} must be a string, got ${describe(given[key])}`);
    }
  }
  const empty = ["host", "path"].find((key) => given[key] === "");
  if (empty) throw new TypeError(`${what}.${empty} is empty. Name the server, or leave out this option`);
  const ignored = version.startsWith("4.") && SINCE_5.find((key) => given[key] !== undefined);
  if (ignored) throw new TypeError(`${what}.${ignored} requires node-redis 5.1 or newer, and ${version} is installed`);
}

/** Checks a URL, or options of node-redis. Rejects a client of node-redis or ioredis. */
function redis(value) {
  const given = typeof value === "string" ? { url: value } : options("redis", value, OF_REDIS);
  values("redis", given);
  if (given.socket !== undefined) {
    const known = [...OF_SOCKET, ...Object.keys(OURS)];
    const { tls } = options("redis.socket", given.socket, known, "what node-redis, net.connect and tls.connect have");
    const ours = Object.keys(OURS).find((key) => given.socket[key] !== undefined);
    if (ours) throw new TypeError(`redis.socket.${ours} cannot be set: ${OURS[ours]}`);
    values("redis.socket", given.socket);
    // If `tls` is an object, node-redis connects without TLS.
    if (tls !== undefined && typeof tls !== "boolean") {
      throw new TypeError("redis.socket.tls must be true or false. Options such as ca belong beside it");
    }
  }
  return resolve(given);
}

module.exports = {
  limit, weight, milliseconds, timeout, isName, name, prefix, share, cap, group, callback, signal, options, redis,
};

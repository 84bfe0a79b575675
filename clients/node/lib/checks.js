"use strict";

const { resolve } = require("./address");

const MOST = 2 ** 32 - 1;
const LONGEST = 7 * 24 * 60 * 60 * 1000;

/** Wrong arguments are found before they are sent: one would have the calls of others refused. */
function integer(what, value, least, most) {
  if (!Number.isInteger(value) || value < least || value > most) {
    const advice = value > MOST && most === MOST ? ": count in a larger unit" : "";
    throw new RangeError(`${what} must be an integer from ${least} to ${most}, got ${value}${advice}`);
  }
  return value;
}

const limit = (value) => integer("limit", value, 0, MOST);
const weight = (value) => integer("weight", value, 1, MOST);
const milliseconds = (what, value) => integer(`${what} (ms)`, value, 1, LONGEST);

/** What is left until a deadline: fractions of it, too, and less than nothing. */
function timeout(value) {
  if (typeof value === "number" && value <= LONGEST) return value;
  throw new RangeError(`timeout (ms) must be a number up to ${LONGEST}, got ${value}`);
}

/** Of keys and messages: braces and lines have a meaning there. */
function isName(value) {
  const bytes = Buffer.from(String(value));
  // eslint-disable-next-line no-control-regex
  return /^[^{}\x00-\x1f\x7f]+$/.test(value) && bytes.length <= 512 && bytes.toString() === value;
}

function name(value) {
  if (isName(value)) return value;
  throw new RangeError(`name must be 1 to 512 bytes without braces and control characters, got ${value}`);
}

/** It begins channels, too, and those have no blanks. */
function prefix(value) {
  const bytes = Buffer.from(String(value));
  // eslint-disable-next-line no-control-regex
  if (!/^[^{}\s\x00-\x1f\x7f]+$/.test(value) || bytes.length > 200 || bytes.toString() !== value) {
    throw new RangeError(`prefix must be 1 to 200 bytes without braces and white space, got ${value}`);
  }
  return value;
}

const describe = (value) => value?.constructor?.name ?? typeof value;

/** One that is misspelt, or an object of another kind, would do nothing. */
function options(what, value, known) {
  const prototype = typeof value === "object" && value !== null ? Object.getPrototypeOf(value) : undefined;
  if (prototype !== null && prototype !== Object.prototype) {
    throw new TypeError(`${what} must be a plain object, got ${describe(value)}`);
  }
  const unknown = Object.keys(value).find((key) => !known.includes(key));
  if (unknown !== undefined) throw new TypeError(`${what}: there is no ${unknown}, but ${known.join(", ")}`);
  return value;
}

/** Those of node-redis, 4 to 6, that make sense here. */
const OF_REDIS = [
  "url", "socket", "username", "password", "credentialsProvider", "name", "database", "commandsQueueMaxLength",
  "pingInterval", "clientInfoTag", "maintNotifications", "maintEndpointType", "maintRelaxedCommandTimeout",
  "maintRelaxedSocketTimeout",
];

/** A URL, or options for node-redis. A client of node-redis or ioredis is neither. */
const redis = (value) => resolve(typeof value === "string" ? { url: value } : options("redis", value, OF_REDIS));

module.exports = { limit, weight, milliseconds, timeout, isName, name, prefix, options, redis };

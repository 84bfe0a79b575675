"use strict";

const MOST = 2 ** 32 - 1;
const LONGEST = 7 * 24 * 60 * 60 * 1000;

/** Wrong arguments are found before they are sent: one would have the calls of others refused. */
function integer(what, value, least, most) {
  if (!Number.isInteger(value) || value < least || value > most) {
    throw new RangeError(`${what} must be an integer from ${least} to ${most}, got ${value}`);
  }
  return value;
}

const limit = (value) => integer("limit", value, 0, MOST);
const weight = (value) => integer("weight", value, 1, MOST);
const milliseconds = (what, value) => integer(`${what} (ms)`, value, 1, LONGEST);

/** Of keys and messages: braces and lines have a meaning there. */
function name(value) {
  const bytes = Buffer.from(String(value));
  // eslint-disable-next-line no-control-regex
  if (!/^[^{}\x00-\x1f\x7f]+$/.test(value) || bytes.length > 512 || bytes.toString() !== value) {
    throw new RangeError(`name must be 1 to 512 bytes without braces and control characters, got ${value}`);
  }
  return value;
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

module.exports = { limit, weight, milliseconds, name, prefix };

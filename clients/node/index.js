"use strict";

const { isPassing, says, ...errors } = require("./lib/errors");
const { Permit } = require("./lib/permit");
const { Semaphore } = require("./lib/semaphore");
const { Semaphores } = require("./lib/semaphores");

module.exports = { Semaphores, Semaphore, Permit, ...errors };

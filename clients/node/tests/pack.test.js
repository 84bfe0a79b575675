"use strict";

const assert = require("node:assert/strict");
const { spawnSync } = require("node:child_process");
const fs = require("node:fs");
const os = require("node:os");
const path = require("node:path");

const { test } = require("./support.js");

test("if packing fails, the links are unchanged", async (t) => {
  const root = fs.mkdtempSync(path.join(os.tmpdir(), "node-test."));
  t.after(() => fs.rmSync(root, { recursive: true }));
  const folder = path.join(root, "clients/node");
  const manifest = path.join(root, "lua/manifest.json");
  for (const dir of ["clients/node/lib", "lua"]) fs.mkdirSync(path.join(root, dir), { recursive: true });
  for (const license of ["LICENSE-APACHE", "LICENSE-MIT"]) fs.writeFileSync(path.join(root, license), license);
  fs.copyFileSync(path.join(__dirname, "../pack.js"), path.join(folder, "pack.js"));
  const pack = (what) => spawnSync(process.execPath, ["pack.js", what], { cwd: folder, encoding: "utf8" });
  const look = () =>
    ["LICENSE-APACHE", "LICENSE-MIT", "lib/manifest.json"].map((name) => {
      const file = path.join(folder, name);
      return fs.lstatSync(file).isSymbolicLink() ? fs.readlinkSync(file) : "a file";
    });
  const links = ["../../LICENSE-APACHE", "../../LICENSE-MIT", "../../../lua/manifest.json"];

  assert.equal(pack("links").status, 0);
  assert.deepEqual(look(), links);
  const { status, stderr } = pack("files"); // The manifest is missing.
  assert.equal(status, 1);
  assert.match(stderr, /ENOENT.*manifest\.json/);
  assert.deepEqual(look(), links);
  assert.deepEqual(fs.readdirSync(folder).sort(), ["LICENSE-APACHE", "LICENSE-MIT", "lib", "pack.js"]);

  fs.writeFileSync(manifest, "{}");
  assert.equal(pack("files").status, 0);
  assert.deepEqual(look(), ["a file", "a file", "a file"]);
  assert.equal(pack("links").status, 0);
  assert.deepEqual(look(), links);
  assert.equal(fs.readFileSync(manifest, "utf8"), "{}");
});

test("in a copy with files instead of links, packing works and changes nothing", (t) => {
  const root = fs.mkdtempSync(path.join(os.tmpdir(), "node-test."));
  t.after(() => fs.rmSync(root, { recursive: true }));
  for (const name of ["package.json", "pack.js", "LICENSE-APACHE", "LICENSE-MIT", "lib"]) {
    fs.cpSync(path.join(__dirname, "..", name), path.join(root, name), { recursive: true, dereference: true });
  }
  const look = () => ["LICENSE-APACHE", "LICENSE-MIT", "lib/manifest.json"].map((name) => fs.lstatSync(path.join(root, name)).mtimeMs);
  const before = look();
  const { status, stdout, stderr } = spawnSync("npm", ["pack", "--json"], { cwd: root, encoding: "utf8" });
  assert.equal(status, 0, stderr);
  const packed = JSON.parse(stdout.slice(stdout.indexOf("[")))[0].files.map(({ path }) => path);
  for (const name of ["LICENSE-APACHE", "LICENSE-MIT", "lib/manifest.json"]) assert.ok(packed.includes(name), stdout);
  assert.deepEqual(look(), before);
});

test("a copy without the files of its links is reported, and a copy with these files works", (t) => {
  const root = fs.mkdtempSync(path.join(os.tmpdir(), "node-test."));
  t.after(() => fs.rmSync(root, { recursive: true }));
  const load = (dereference) => {
    fs.cpSync(path.join(__dirname, "../lib"), path.join(root, "lib"), { recursive: true, dereference, verbatimSymlinks: !dereference });
    return spawnSync(process.execPath, ["lib/scripts.js"], { cwd: root, encoding: "utf8" });
  };
  assert.match(load(false).stderr, /Error: lib\/manifest\.json is missing: to copy clients\/node alone, use cp -rL/);
  fs.rmSync(path.join(root, "lib"), { recursive: true });
  assert.equal(load(true).status, 0);
});

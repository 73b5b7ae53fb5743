// Runs a program of the package for this machine's architecture, with the same arguments, streams and exit code.
"use strict";

const { spawn } = require("node:child_process");

module.exports = (name) => {
  const home = `allograft-linux-${process.arch}`;
  let program;
  try {
    program = require.resolve(`${home}/bin/${name}`);
  } catch {
    console.error(`error: the package \`${home}\` is missing`);
    console.error("help: there are packages for Linux on x64 and arm64; install without `--omit=optional`");
    process.exit(2);
  }
  const child = spawn(program, process.argv.slice(2), { stdio: "inherit" });
  // A terminal sends these two to the program as well.
  for (const signal of ["SIGINT", "SIGHUP"]) process.on(signal, () => {});
  process.on("SIGTERM", () => child.kill("SIGTERM"));
  child.on("error", (error) => {
    console.error(`error: cannot start \`${program}\`: ${error.message}`);
    process.exit(2);
  });
  child.on("exit", (code, signal) => {
    if (signal === null) process.exit(code);
    process.removeAllListeners(signal);
    process.kill(process.pid, signal);
  });
};

const std = @import("std");

pub fn build(b: *std.Build) void {
    const musl: std.Target.Query = .{ .cpu_arch = .x86_64, .os_tag = .linux, .abi = .musl };
    const target = b.standardTargetOptions(.{ .default_target = musl });
    const donor = b.option([]const u8, "donor", "One of `allograft donors`, or off") orelse "snmalloc";
    const sanitize_thread = b.option(bool, "tsan", "Find data races") orelse false;

    const exe = b.addExecutable(.{
        .name = "server",
        .root_module = b.createModule(.{
            .target = target,
            .optimize = b.standardOptimizeOption(.{}),
            .link_libc = true,
            .sanitize_thread = sanitize_thread,
        }),
    });
    exe.root_module.addCSourceFile(.{ .file = b.path("server.c") });
    b.installArtifact(exe);

    const check = b.step("test", "Check which malloc the program has");
    if (std.mem.eql(u8, donor, "off")) return;
    if (sanitize_thread) {
        const refusal = b.addFail("-Dtsan finds errors by a malloc of its own, which a donor would replace\n" ++
            "help: build with -Ddonor=off");
        exe.step.dependOn(&refusal.step);
    }

    const triple = b.fmt("{s}-linux-musl", .{@tagName(target.result.cpu.arch)});
    const emit = b.addSystemCommand(&.{ "allograft", "--quiet", "emit", "--donor", donor, "--target", triple, "-o" });
    exe.root_module.addObjectFile(emit.addOutputFileArg("allograft.o"));
    // When zig links by itself, it takes musl's malloc although the object comes first.
    exe.use_llvm = true;

    const inspect = b.addSystemCommand(&.{ "allograft", "inspect", "--expect", donor });
    inspect.addArtifactArg(exe);
    check.dependOn(&inspect.step);
}

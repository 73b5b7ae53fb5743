//! Multiplication of complex numbers: musl's <complex.h> functions call these on every architecture.

const builtin = @import("builtin");

pub const panic = @import("compiler_rt/common.zig").panic;

comptime {
    _ = @import("compiler_rt/muldc3.zig");
    _ = @import("compiler_rt/mulsc3.zig");
    if (builtin.cpu.arch.isX86()) {
        _ = @import("compiler_rt/mulxc3.zig");
    } else {
        _ = @import("compiler_rt/multc3.zig");
    }
}

//! Division of 64-bit numbers, which no 32-bit processor has an instruction for, and of 32-bit ones, which ARMv7 need not
//! have; conversion between 64-bit numbers and floats.

const builtin = @import("builtin");

pub const panic = @import("compiler_rt/common.zig").panic;

comptime {
    if (builtin.cpu.arch == .x86 or builtin.cpu.arch.isArm()) {
        _ = @import("compiler_rt/int.zig");
        _ = @import("compiler_rt/fixdfdi.zig");
        _ = @import("compiler_rt/fixsfdi.zig");
        _ = @import("compiler_rt/fixunsdfdi.zig");
        _ = @import("compiler_rt/floatdidf.zig");
        _ = @import("compiler_rt/floatundidf.zig");
    }
    if (builtin.cpu.arch.isArm()) {
        _ = @import("compiler_rt/arm.zig");
    }
}

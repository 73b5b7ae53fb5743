//! sin and its like: the libc.a of zig 0.15 leaves them to zig's own runtime.

pub const panic = @import("compiler_rt/common.zig").panic;

comptime {
    _ = @import("compiler_rt/cos.zig");
    _ = @import("compiler_rt/sin.zig");
    _ = @import("compiler_rt/tan.zig");
    _ = @import("compiler_rt/floor.zig");
    _ = @import("compiler_rt/fabs.zig");
    // What the 16-bit and 80-bit variants of those call.
    _ = @import("compiler_rt/extendhfsf2.zig");
    _ = @import("compiler_rt/truncsfhf2.zig");
    _ = @import("compiler_rt/addhf3.zig");
    _ = @import("compiler_rt/cmphf2.zig");
}

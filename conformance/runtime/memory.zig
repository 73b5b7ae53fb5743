//! memcpy and its like: the libc.a of zig 0.15 leaves them to zig's own runtime.

pub const panic = @import("compiler_rt/common.zig").panic;

comptime {
    _ = @import("compiler_rt/memcpy.zig");
    _ = @import("compiler_rt/memmove.zig");
    _ = @import("compiler_rt/memset.zig");
    _ = @import("compiler_rt/memcmp.zig");
    _ = @import("compiler_rt/bcmp.zig");
}

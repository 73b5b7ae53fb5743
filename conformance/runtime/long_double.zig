//! 128-bit floats, which aarch64 and riscv64 have no instructions for: musl's printf, scanf and long double functions call these.

pub const panic = @import("compiler_rt/common.zig").panic;

comptime {
    _ = @import("compiler_rt/addtf3.zig");
    _ = @import("compiler_rt/subtf3.zig");
    _ = @import("compiler_rt/multf3.zig");
    _ = @import("compiler_rt/divtf3.zig");
    _ = @import("compiler_rt/cmptf2.zig");
    _ = @import("compiler_rt/getf2.zig");
    _ = @import("compiler_rt/unordtf2.zig");
    _ = @import("compiler_rt/extenddftf2.zig");
    _ = @import("compiler_rt/extendsftf2.zig");
    _ = @import("compiler_rt/fixtfdi.zig");
    _ = @import("compiler_rt/fixtfsi.zig");
    _ = @import("compiler_rt/fixunstfsi.zig");
    _ = @import("compiler_rt/fixunstfdi.zig");
    _ = @import("compiler_rt/floatditf.zig");
    _ = @import("compiler_rt/floatsitf.zig");
    _ = @import("compiler_rt/floatunsitf.zig");
    _ = @import("compiler_rt/floatunditf.zig");
    _ = @import("compiler_rt/trunctfdf2.zig");
    _ = @import("compiler_rt/trunctfsf2.zig");
    _ = @import("compiler_rt/extendxftf2.zig");
    _ = @import("compiler_rt/trunctfxf2.zig");
    _ = @import("compiler_rt/shift.zig");
}

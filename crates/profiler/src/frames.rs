//! Names the places of all walks: functions, their modules and their roles.

use std::collections::HashMap;

use crate::recording::Recording;
use crate::roles::{Role, role};
use crate::space::{self, CodeAddress};
use crate::symbols::demangled;

/// A function in a stack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Frame {
    /// The demangled name. For a function without a name, its file and address.
    pub(crate) name: String,
    /// The file's name, without folders.
    pub(crate) module: String,
    pub(crate) role: Role,
}

/// The frames of every walk.
pub(crate) struct Frames {
    pub(crate) all: Vec<Frame>,
    /// The numbers of the frames of each walk, the innermost first.
    pub(crate) stacks: Vec<Vec<u32>>,
    /// Of each walk, the innermost place of each frame.
    places: Vec<Vec<(u32, CodeAddress)>>,
}

impl Frames {
    pub(crate) fn new(recording: &Recording) -> Frames {
        let mut frames = Frames { all: Vec::new(), stacks: Vec::new(), places: Vec::new() };
        let mut names: HashMap<(String, String), u32> = HashMap::new();
        let mut places: HashMap<(CodeAddress, bool), u32> = HashMap::new();
        for walk in &recording.walks {
            let mut stack = Vec::with_capacity(walk.places.len());
            let mut innermost: Vec<(u32, CodeAddress)> = Vec::with_capacity(walk.places.len());
            for (depth, place) in walk.places.iter().enumerate() {
                let caller = walk.places.get(depth + 1).copied();
                let donated = is_donated(recording, *place);
                let shared = is_shared(recording, *place, depth > 0, caller);
                let key = (*place, depth == 0);
                let number = match places.get(&key).filter(|_| !donated && !shared) {
                    Some(number) => *number,
                    None => {
                        let frame = if donated {
                            donated_frame(recording, *place, caller)
                        } else {
                            frame(recording, *place, depth > 0, shared)
                        };
                        let number = frames.number(&mut names, frame);
                        if !donated && !shared {
                            places.insert(key, number);
                        }
                        number
                    }
                };
                stack.push(number);
                if !innermost.iter().any(|(frame, _)| *frame == number) {
                    // A call's line is that of the instruction before its return address.
                    let address = place.address.saturating_sub(u64::from(depth > 0));
                    innermost.push((number, CodeAddress { address, ..*place }));
                }
                // A stripped library's public function may jump to a different function, which leaves no frame. The
                // call names the public function.
                if let Some(name) = caller.and_then(|caller| imported(recording, *place, caller))
                    && role(name) != Role::Other
                    && frames.all[number as usize].name != name
                {
                    let frame = Frame { name: name.to_owned(), ..frames.all[number as usize].clone() };
                    let frame = Frame { role: role(name), ..frame };
                    stack.push(frames.number(&mut names, frame));
                }
            }
            // A donor that was put in after linking also runs before `main` and before a thread's function, and calls
            // them.
            for at in (1..stack.len()).rev() {
                let is =
                    |at: usize, module: &str| stack.get(at).is_some_and(|n| frames.all[*n as usize].module == module);
                let unnamed = frames.all[stack[at] as usize].name == UNNAMED_DONOR;
                if unnamed && !is(at - 1, DONOR) && !is(at + 1, DONOR) {
                    stack[at] = frames.number(&mut names, Frame::starts());
                }
            }
            // Frames inside of a donor have no names: all of them belong to the called function.
            let outermost = stack.iter().rposition(|number| frames.all[*number as usize].name == UNNAMED_DONOR);
            if let Some(last) = outermost
                && let Some(named) = stack.get(last + 1).copied()
                && frames.all[named as usize].module == DONOR
            {
                stack.drain(..=last);
            }
            frames.stacks.push(stack);
            frames.places.push(innermost);
        }
        frames
    }

    /// The line of the source where the frame `number` is in a walk, such as `server.c:12`; `None` where the file has
    /// no such debug information.
    pub(crate) fn line(&self, recording: &Recording, walk: usize, number: u32) -> Option<String> {
        let (_, place) = self.places[walk].iter().find(|(frame, _)| *frame == number)?;
        recording.library.modules[place.module? as usize].lines.at(place.address)
    }

    /// The number of a frame, which is kept once.
    fn number(&mut self, names: &mut HashMap<(String, String), u32>, frame: Frame) -> u32 {
        let next = u32::try_from(self.all.len()).unwrap_or(u32::MAX);
        let number = *names.entry((frame.name.clone(), frame.module.clone())).or_insert(next);
        if number == next {
            self.all.push(frame);
        }
        number
    }
}

impl Frame {
    /// A frame of a donor that starts the program or a thread.
    fn starts() -> Frame {
        Frame { name: "[start in the donor]".to_owned(), module: "[graft]".to_owned(), role: Role::Other }
    }
}

/// The name that `transplant` gives to functions inside of malloc.
const INSIDE_MALLOC: &str = "malloc's own";
/// The module of frames in a donor that was put in after linking.
const DONOR: &str = "donor";
const UNNAMED_DONOR: &str = "[donor]";

/// Whether other code called a function, such as `mmap`, that a stripped program's malloc also calls: the caller is not
/// part of malloc, and calls this function directly, not `malloc`, which may jump here.
fn is_shared(recording: &Recording, place: CodeAddress, called: bool, caller: Option<CodeAddress>) -> bool {
    let inside = |place: CodeAddress, address: u64| {
        let module = place.module.map(|number| &recording.library.modules[number as usize])?;
        Some(module.symbols.function_at(address)?.name.as_deref() == Some(INSIDE_MALLOC))
    };
    let address = if called { place.address.saturating_sub(1) } else { place.address };
    let Some(caller) = caller.filter(|_| inside(place, address) == Some(true)) else { return false };
    let target = caller.module.and_then(|number| {
        let module = &recording.library.modules[number as usize];
        space::call_before(module.code_before(caller.address, 8), caller.address)?
    });
    target.is_some_and(|target| inside(caller, target) == Some(true)) && !is_allocator(recording, caller)
}

/// Whether a caller is a function of an allocator.
fn is_allocator(recording: &Recording, caller: CodeAddress) -> bool {
    let module = caller.module.map(|number| &recording.library.modules[number as usize]);
    let function = module.and_then(|module| module.symbols.function_at(caller.address.saturating_sub(1)));
    function.and_then(|function| function.name.as_deref()).is_some_and(|name| role(name) == Role::Allocator)
}

/// The function of a different file that the caller has called, if `place` is not in the caller's file.
fn imported(recording: &Recording, place: CodeAddress, caller: CodeAddress) -> Option<&str> {
    let module = caller.module.filter(|module| place.module.is_some_and(|called| called != *module))?;
    recording.library.modules[module as usize].imported(caller.address)
}

fn is_donated(recording: &Recording, place: CodeAddress) -> bool {
    let module = place.module.map(|number| &recording.library.modules[number as usize]);
    module.and_then(|module| module.donor.as_ref()).is_some_and(|donor| donor.contains(&place.address))
}

/// A frame in a donor: named by the function of the program that was called, and that jumps to the donor.
fn donated_frame(recording: &Recording, _: CodeAddress, caller: Option<CodeAddress>) -> Frame {
    let called = caller.and_then(|caller| {
        let module = &recording.library.modules[caller.module? as usize];
        let target = space::call_before(module.code_before(caller.address, 8), caller.address)??;
        module.symbols.function_at(target)?.name.clone()
    });
    match called {
        Some(name) => {
            let name = demangled(&name);
            let role = if role(&name) == Role::Strings { Role::Strings } else { Role::Allocator };
            Frame { name, module: DONOR.to_owned(), role }
        }
        None => Frame { name: UNNAMED_DONOR.to_owned(), module: DONOR.to_owned(), role: Role::Allocator },
    }
}

/// A frame. `shared` is the result of [`is_shared`].
fn frame(recording: &Recording, place: CodeAddress, called: bool, shared: bool) -> Frame {
    let Some(number) = place.module else {
        let name = format!("[{:#x}]", place.address);
        return Frame { name, module: "[unknown]".to_owned(), role: Role::Other };
    };
    let module = &recording.library.modules[number as usize];
    let file = module.path.rsplit('/').next().unwrap_or_default().to_owned();
    // If a function's last call does not return, the return address is behind the function's end.
    let lookup = if called { place.address.saturating_sub(1) } else { place.address };
    let function = module.symbols.function_at(lookup);
    let name = match function {
        Some(function) if shared => format!("{file}+{:#x}", function.start),
        Some(function) => match &function.name {
            Some(name) => demangled(name),
            None => format!("{file}+{:#x}", function.start),
        },
        None => format!("{file}+{lookup:#x}"),
    };
    let role = if file == "[vdso]" { Role::Other } else { role(&name) };
    Frame { name, module: file, role }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::module::Module;
    use crate::space::Walk;
    use crate::symbols::Function;

    fn function(start: u64, end: u64, name: Option<&str>) -> Function {
        Function { start, end, name: name.map(str::to_owned) }
    }

    /// The names in each stack of a program with these functions and this code.
    fn stacks(
        functions: Vec<Function>,
        code: (u64, Vec<u8>),
        donor: Option<std::ops::Range<u64>>,
        walks: &[&[(Option<u32>, u64)]],
    ) -> (Frames, Vec<Vec<String>>) {
        let mut module = Module::of_functions("/bin/program", functions, code);
        module.donor = donor;
        let mut recording = Recording::default();
        recording.library.modules.push(module);
        recording.walks = walks
            .iter()
            .map(|places| Walk {
                places: places
                    .iter()
                    .map(|(module, address)| CodeAddress { module: *module, address: *address })
                    .collect(),
                truncated: false,
            })
            .collect();
        let frames = Frames::new(&recording);
        let name = |number: &u32| frames.all[*number as usize].name.clone();
        let names = frames.stacks.iter().map(|stack| stack.iter().map(name).collect()).collect();
        (frames, names)
    }

    #[test]
    fn places_are_named_by_functions_by_files_or_by_addresses() {
        let functions = vec![
            function(0x1000, 0x1010, Some("_ZN3one3twoEi")),
            function(0x1010, 0x1020, Some("free")),
            function(0x3000, 0x3010, None),
        ];
        let walk = [(Some(0), 0x1010), (Some(0), 0x1010), (Some(0), 0x3004), (Some(0), 0x9000), (None, 0x7f00)];
        let (frames, names) = stacks(functions, (0, Vec::new()), None, &[&walk]);
        // A return address behind the end of a function belongs to the call before it.
        assert_eq!(names, [["free", "one::two", "program+0x3000", "program+0x8fff", "[0x7f00]"]]);
        let role_of = |name: &str| frames.all.iter().find(|frame| frame.name == name).map(|frame| frame.role);
        assert_eq!((role_of("free"), role_of("one::two")), (Some(Role::Allocator), Some(Role::Other)));
        let modules: Vec<&str> = frames.all.iter().map(|frame| frame.module.as_str()).collect();
        assert_eq!(modules, ["program", "program", "program", "program", "[unknown]"]);
    }

    #[test]
    fn a_function_is_one_frame_wherever_it_was_seen() {
        let functions = vec![function(0x1000, 0x1100, Some("main")), function(0x2000, 0x2100, Some("work"))];
        let walks: [&[(Option<u32>, u64)]; 2] =
            [&[(Some(0), 0x2004), (Some(0), 0x1010)], &[(Some(0), 0x2050), (Some(0), 0x1020)]];
        let (frames, _) = stacks(functions, (0, Vec::new()), None, &walks);
        assert_eq!((frames.all.len(), &frames.stacks[0]), (2, &frames.stacks[1]));
    }

    /// Code at 0x1000 that calls 0x2000, and returns to 0x1005.
    #[cfg(target_arch = "x86_64")]
    const CALL: [u8; 5] = [0xe8, 0xfb, 0x0f, 0, 0];

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn frames_in_a_donor_belong_to_the_function_that_was_called() {
        let functions = vec![function(0x1000, 0x1100, Some("main")), function(0x2000, 0x2010, Some("malloc"))];
        let walk = [(Some(0), 0x9010), (Some(0), 0x9100), (Some(0), 0x1005)];
        let (frames, names) = stacks(functions, (0x1000, CALL.to_vec()), Some(0x9000..0xa000), &[&walk]);
        assert_eq!(names, [["malloc", "main"]]);
        let malloc = frames.all.iter().find(|frame| frame.name == "malloc").unwrap();
        assert_eq!((malloc.module.as_str(), malloc.role), (DONOR, Role::Allocator));
    }

    #[test]
    fn a_donor_that_starts_a_program_is_no_allocator_there() {
        let functions = vec![function(0x1000, 0x1100, Some("main")), function(0x2000, 0x2100, Some("work"))];
        let walk = [(Some(0), 0x2004), (Some(0), 0x1010), (Some(0), 0x9100)];
        let (frames, names) = stacks(functions, (0, Vec::new()), Some(0x9000..0xa000), &[&walk]);
        assert_eq!(names, [["work", "main", "[start in the donor]"]]);
        assert_eq!(frames.all[frames.stacks[0][2] as usize].role, Role::Other);
    }

    /// A stripped program's malloc calls functions that the program calls as well.
    #[cfg(target_arch = "x86_64")]
    #[test]
    fn functions_that_malloc_shares_are_its_own_only_if_it_calls_them() {
        let functions = || {
            vec![
                function(0x1000, 0x1100, None),
                function(0x2000, 0x2010, Some(INSIDE_MALLOC)),
                function(0x3000, 0x3010, Some("malloc")),
            ]
        };
        let code = (0x1000, CALL.to_vec());
        let (_, names) = stacks(functions(), code.clone(), None, &[&[(Some(0), 0x2004), (Some(0), 0x1005)]]);
        assert_eq!(names, [["program+0x2000", "program+0x1000"]]);
        let (_, names) = stacks(functions(), code, None, &[&[(Some(0), 0x2004), (Some(0), 0x3005)]]);
        assert_eq!(names, [[INSIDE_MALLOC, "malloc"]]);
    }
}

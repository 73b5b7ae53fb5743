//! Flame graphs: the calls of all samples of one kind as a tree, drawn as SVG, and as collapsed stacks.
//!
//! Places and widths of frames are in percent, and letters in pixels: a graph has readable names at any width, and a
//! name ends where its frame does. [`SCRIPT`] brings search, zoom and keyboard to the graphs of a page; it is our own,
//! since the scripts of others are not under a licence that this project may pass on.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::rc::Rc;

use crate::analysis::Profile;
use crate::attribution::Class;
use crate::roles::Role;
use crate::size::size;

/// A flame graph.
#[derive(Debug, Default)]
pub struct Flame {
    root: Node,
    unit: Unit,
}

/// A function below its callers, and the time in it or its bytes.
#[derive(Debug, Default)]
struct Node {
    weight: f64,
    /// By name and colour, so that two runs draw the same.
    children: BTreeMap<(Rc<str>, Colour), Node>,
}

/// The unit of the widths of frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Unit {
    /// Seconds of all threads.
    #[default]
    Seconds,
    /// Bytes of the heap.
    Bytes,
}

impl Unit {
    /// The text in a graph's title.
    fn whole(self, weight: f64) -> String {
        match self {
            Unit::Seconds => format!("{weight:.2} s of all threads"),
            Unit::Bytes => size(weight as u64),
        }
    }

    /// The text of a frame.
    fn part(self, weight: f64) -> String {
        match self {
            Unit::Seconds => format!("{weight:.3} s"),
            Unit::Bytes => size(weight as u64),
        }
    }

    /// The name of the whole, for the result of a search.
    fn name(self) -> &'static str {
        match self {
            Unit::Seconds => "time",
            Unit::Bytes => "bytes",
        }
    }
}

/// The colour of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(crate) enum Colour {
    Allocator,
    Strings,
    Lock,
    /// Labels, such as the reasons to wait.
    Label,
    #[default]
    Other,
}

impl Colour {
    pub(crate) fn for_role(role: Role) -> Colour {
        match role {
            Role::Allocator => Colour::Allocator,
            Role::Strings => Colour::Strings,
            Role::Lock | Role::Wait => Colour::Lock,
            Role::Other => Colour::Other,
        }
    }

    fn class(self) -> &'static str {
        match self {
            Colour::Allocator => "fa",
            Colour::Strings => "fs",
            Colour::Lock => "fl",
            Colour::Label => "fn",
            Colour::Other => "fo",
        }
    }
}

impl Profile {
    /// The flame graph of the time for which threads had a processor, in seconds of all threads together.
    pub fn on_cpu(&self) -> Flame {
        self.flame(true)
    }

    /// The flame graph of the time for which threads had no processor: below the bottom frames, by the reason why they
    /// waited. One reason is a processor.
    pub fn off_cpu(&self) -> Flame {
        self.flame(false)
    }

    /// The seconds that a sample represents: with a processor, and without one.
    pub(crate) fn seconds(&self, at: usize) -> [f64; 2] {
        let processor = &self.attribution.processor;
        let sample = &self.recording.samples[at];
        match self.attribution.samples[at].running {
            true => [processor.with[at], processor.without[at]],
            false => [0.0, self.recording.moments[sample.moment as usize].span.as_secs_f64()],
        }
    }

    fn flame(&self, running: bool) -> Flame {
        let mut flame = Flame::default();
        for (at, sample) in self.recording.samples.iter().enumerate() {
            let attributed = self.attribution.samples[at];
            let [with, without] = self.seconds(at);
            let seconds = if running { with } else { without };
            if seconds <= 0.0 {
                continue;
            }
            let mut path: Vec<(Rc<str>, Colour)> = Vec::new();
            if !running {
                let label = if attributed.running { "[waiting for a processor]" } else { label(attributed.class) };
                path.push((label.into(), Colour::Label));
            }
            if self.recording.walks[sample.walk as usize].truncated {
                path.push(("[truncated]".into(), Colour::Label));
            }
            let stack = || {
                let numbers = self.frames.stacks[sample.walk as usize].iter().rev();
                numbers.map(|number| &self.frames.all[*number as usize])
            };
            let colours = colours(stack().map(|frame| frame.role));
            path.extend(stack().map(|frame| frame.name.as_str().into()).zip(colours));
            flame.add(path, seconds);
        }
        flame
    }
}

/// The colours of a stack of frames, the outermost first. A function that the allocator calls counts to it, as in the
/// shares.
fn colours(roles: impl Iterator<Item = Role>) -> impl Iterator<Item = Colour> {
    let mut within = false;
    roles.map(move |role| {
        within |= role == Role::Allocator;
        if within && role == Role::Other { Colour::Allocator } else { Colour::for_role(role) }
    })
}

/// The label of a blocked thread's reason to wait.
fn label(class: Class) -> &'static str {
    match class {
        Class::Allocator | Class::AllocatorLock => "[allocator's lock]",
        Class::AllocatorMemory | Class::Memory => "[memory calls]",
        Class::Lock => "[lock]",
        Class::Io => "[input and output]",
        Class::Fault => "[page fault]",
        Class::Wait | Class::Strings | Class::Cpu => "[waiting]",
    }
}

/// The width of a graph that stands alone, in pixels, and the height of a frame.
const WIDTH: f64 = 1200.0;
const HEIGHT: usize = 17;
/// The space above the frames.
const TOP: usize = 34;
/// The narrowest frame that is drawn, as a part of the whole: a zoom makes it wider.
const NARROWEST: f64 = 1.0 / 12_000.0;
/// The narrowest frame that has a name on it without a script.
const NAMED: f64 = 22.0 / WIDTH;

/// The script for the graphs of a page.
pub(crate) const SCRIPT: &str = include_str!("flame.js");

impl Flame {
    /// An empty graph of bytes.
    pub(crate) fn of_bytes() -> Flame {
        Flame { unit: Unit::Bytes, ..Flame::default() }
    }

    /// Whether there is nothing to draw.
    pub(crate) fn is_empty(&self) -> bool {
        self.root.weight <= 0.0
    }

    /// Adds a stack, the outermost frame first.
    pub(crate) fn add(&mut self, path: impl IntoIterator<Item = (Rc<str>, Colour)>, weight: f64) {
        let mut node = &mut self.root;
        node.weight += weight;
        for frame in path {
            node = node.children.entry(frame).or_default();
            node.weight += weight;
        }
    }

    /// The stacks as lines: frames from the outermost on with semicolons between, and the time in microseconds.
    pub fn collapsed(&self) -> String {
        let mut lines = String::new();
        let mut open: Vec<(String, &Node)> = vec![(String::new(), &self.root)];
        while let Some((path, node)) = open.pop() {
            let own = node.weight - node.children.values().map(|child| child.weight).sum::<f64>();
            let micros = (own * 1e6).round();
            if !path.is_empty() && micros >= 1.0 {
                // Writing to a string cannot fail.
                let _ = writeln!(lines, "{path} {micros}");
            }
            for ((name, _), child) in node.children.iter().rev() {
                // A line is a stack, and a semicolon ends a frame.
                let one = |letter: char| if letter == ';' { ':' } else { letter };
                let name: String = name.chars().map(|it| if it.is_control() { '?' } else { one(it) }).collect();
                let joined = if path.is_empty() { name } else { format!("{path};{name}") };
                open.push((joined, child));
            }
        }
        lines
    }

    /// The graph as an SVG file, with the reader's light or dark theme.
    pub fn svg(&self, title: &str) -> String {
        let height = self.height();
        let size = format!("viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\"");
        let style = format!("<style>{}</style>", own_style());
        format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n{}\n", self.drawing(title, &size, &style))
    }

    /// The graph as an element of a page, as wide as the page.
    pub(crate) fn element(&self, title: &str) -> String {
        self.drawing(title, &format!("style=\"width:100%;height:{}px\"", self.height()), "")
    }

    fn height(&self) -> usize {
        TOP + deepest(&self.root, self.root.weight) * HEIGHT + 6
    }

    fn drawing(&self, title: &str, size: &str, style: &str) -> String {
        let whole = self.root.weight;
        let mut text = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"flame\" data-whole=\"{}\" {size} role=\"img\">{style}<rect \
             class=\"paper\" width=\"100%\" height=\"100%\"/><text x=\"4\" y=\"20\" class=\"head\">{}: {}</text>",
            self.unit.name(),
            escaped(title),
            self.unit.whole(whole)
        );
        if whole > 0.0 {
            let graph = Drawn { whole, bottom: self.height() - 6, unit: self.unit };
            draw(&mut text, ("all", Colour::Label), &self.root, 0.0, 0, &graph);
        }
        text + "</svg>"
    }
}

/// How many frames are above each other, the one of all samples among them.
fn deepest(node: &Node, all: f64) -> usize {
    if node.weight <= 0.0 || node.weight / all < NARROWEST {
        return 0;
    }
    1 + node.children.values().map(|child| deepest(child, all)).max().unwrap_or(0)
}

/// A graph that is drawn.
struct Drawn {
    /// The weight of all stacks.
    whole: f64,
    /// The place of its lower edge.
    bottom: usize,
    unit: Unit,
}

/// Draws a frame, which begins behind the weight `left` from the graph's left edge, and those above it.
fn draw(text: &mut String, frame: (&str, Colour), node: &Node, left: f64, depth: usize, graph: &Drawn) {
    let share = node.weight / graph.whole;
    if share < NARROWEST {
        return;
    }
    let name = escaped(frame.0);
    // Writing to a string cannot fail.
    let _ = write!(
        text,
        "<svg x=\"{:.4}%\" y=\"{}\" width=\"{:.4}%\" height=\"{}\" data-depth=\"{depth}\" data-name=\"{name}\"><title>\
         {name}: {}, {:.1} %</title><rect class=\"{}\" width=\"100%\" height=\"100%\"/>",
        100.0 * left / graph.whole,
        graph.bottom - (depth + 1) * HEIGHT,
        100.0 * share,
        HEIGHT - 1,
        graph.unit.part(node.weight),
        100.0 * share,
        frame.1.class()
    );
    if share >= NAMED {
        let _ = write!(text, "<text x=\"3\" y=\"12\">{name}</text>");
    }
    text.push_str("</svg>");
    let mut left = left;
    for ((name, colour), child) in &node.children {
        draw(text, (name, *colour), child, left, depth + 1, graph);
        left += child.weight;
    }
}

/// The colours, as variables of a theme.
pub(crate) const LIGHT: &str = "--fa:#e8886b;--fs:#b79be0;--fl:#7fb2e5;--fn:#c9ced6;--fo:#f2cf7a;--frame-ink:#1c1e21";
/// The colours of the dark theme.
pub(crate) const DARK: &str = "--fa:#a8472f;--fs:#6d4fa0;--fl:#2f6596;--fn:#454c55;--fo:#7c5f17;--frame-ink:#f0f1f3";
/// The style of the frames.
pub(crate) const FRAMES: &str = "\
.flame text{font:11px ui-monospace,'DejaVu Sans Mono',monospace;fill:var(--frame-ink)}\
.flame .head{font:14px system-ui,sans-serif;fill:var(--ink)}.flame .paper{fill:var(--paper)}\
.flame .fa{fill:var(--fa)}.flame .fs{fill:var(--fs)}.flame .fl{fill:var(--fl)}.flame .fn{fill:var(--fn)}\
.flame .fo{fill:var(--fo)}.flame svg:hover rect{stroke:var(--ink);stroke-width:1}\
.flame svg rect{rx:1px;stroke:var(--paper);stroke-width:.6px}";

fn own_style() -> String {
    format!(
        ":root{{--paper:#fff;--ink:#1c1e21;{LIGHT}}}@media(prefers-color-scheme:dark){{:root{{--paper:#15181c;\
         --ink:#e6e8eb;{DARK}}}}}{FRAMES}"
    )
}

/// Escapes for text and for attribute values of XML.
pub(crate) fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            // Control characters are not allowed in XML.
            letter if letter.is_control() => escaped.push('\u{fffd}'),
            letter => escaped.push(letter),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trials::Trial;

    #[test]
    fn time_with_a_processor_and_time_without_one_are_two_graphs() {
        let mut trial = Trial::new()
            .seen(100, &["running: malloc < main", "on futex: __lock < free < main", "on read: read < main"])
            .seen(50, &["on ppoll: poll < main", "on fault: main", "on futex: pthread_mutex_lock < main"])
            .with(|recording| {
                // The first thread has a processor for half of its time.
                let first = recording.samples.iter_mut().filter(|sample| sample.thread == 0);
                first.for_each(|sample| sample.ran = sample.ran.map(|ran| ran / 2.0));
                recording.counts.user_s = 0.5;
            });
        let cut = trial.walk("main");
        let mut recording = trial.recording();
        recording.walks[cut as usize].truncated = true;
        let profile = crate::analysis::analyse(recording);
        assert_eq!(profile.on_cpu().collapsed(), "main;malloc 500000\n");
        let expected = "[allocator's lock];main;free;__lock 1000000\n[input and output];main;read 1000000\n\
                        [lock];main;pthread_mutex_lock 500000\n[page fault];[truncated];main 500000\n\
                        [waiting for a processor];main;malloc 500000\n[waiting];main;poll 500000\n";
        assert_eq!(profile.off_cpu().collapsed(), expected);
    }

    fn flame() -> Flame {
        let mut flame = Flame::default();
        let frame = |name: &str| (name.into(), Colour::Other);
        flame.add(vec![frame("main"), frame("Vec<T>::push"), frame("malloc")], 0.75);
        flame.add(vec![frame("main")], 0.25);
        flame
    }

    /// musl's `get_meta` belongs to `free`, whatever its name.
    #[test]
    fn what_the_allocator_calls_has_its_colour() {
        let roles = [Role::Other, Role::Allocator, Role::Other, Role::Strings, Role::Other];
        let classes: Vec<&str> = colours(roles.into_iter()).map(Colour::class).collect();
        assert_eq!(classes, ["fo", "fa", "fa", "fs", "fa"]);
        assert_eq!(
            colours([Role::Other, Role::Strings].into_iter()).map(Colour::class).collect::<Vec<_>>(),
            ["fo", "fs"]
        );
    }

    #[test]
    fn collapsed_stacks_carry_their_own_time() {
        assert_eq!(flame().collapsed(), "main 250000\nmain;Vec<T>::push;malloc 750000\n");
    }

    #[test]
    fn a_drawing_is_xml_with_a_frame_for_each_function() {
        let svg = flame().svg("On <the> processor");
        let document = roxmltree::Document::parse(&svg).unwrap();
        let titles: Vec<&str> = document
            .descendants()
            .filter(|node| node.tag_name().name() == "title")
            .filter_map(|node| node.text())
            .collect();
        let expected = [
            "all: 1.000 s, 100.0 %",
            "main: 1.000 s, 100.0 %",
            "Vec<T>::push: 0.750 s, 75.0 %",
            "malloc: 0.750 s, 75.0 %",
        ];
        assert_eq!(titles, expected);
        assert!(!svg.contains("<script") && svg.contains("prefers-color-scheme:dark"));
        assert!(roxmltree::Document::parse(&Flame::default().svg("nothing")).is_ok());
    }

    /// The script reads these attributes: place and width in percent, depth, name, and the title.
    #[test]
    fn the_frames_of_a_page_are_what_its_script_reads() {
        let page = flame().element("On the processor");
        let document = roxmltree::Document::parse(&page).unwrap();
        let frames: Vec<_> =
            document.root_element().children().filter(|node| node.tag_name().name() == "svg").collect();
        let read = |name: &str| frames.iter().map(|it| it.attribute(name).unwrap()).collect::<Vec<_>>();
        assert_eq!(read("data-name"), ["all", "main", "Vec<T>::push", "malloc"]);
        assert_eq!(read("data-depth"), ["0", "1", "2", "3"]);
        assert_eq!(read("width"), ["100.0000%", "100.0000%", "75.0000%", "75.0000%"]);
        assert!(frames.iter().all(|frame| frame.attribute("x") == Some("0.0000%")));
        for word in ["dataset.depth", "dataset.name", "\"svg.flame\"", "querySelector(\"title\")"] {
            assert!(SCRIPT.contains(word), "{word}");
        }
        for word in ["http:", "https:", "fetch(", "import ", "eval(", "innerHTML", "</"] {
            assert!(!SCRIPT.contains(word), "the script has `{word}`");
        }
    }
}

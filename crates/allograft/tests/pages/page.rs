//! A page: its sections, and the steps of each: files, scripts, commands.

use std::fs;
use std::path::Path;

/// A page. Every section repeats its introduction.
pub(crate) struct Page {
    /// The sections that run something, or the introduction if only it does.
    pub(crate) sections: Vec<Section>,
    /// The title of the first section without a step, if there is one.
    pub(crate) idle: Option<String>,
}

/// The content under a heading of the second level.
#[derive(Debug, Default, Clone)]
pub(crate) struct Section {
    pub(crate) title: String,
    pub(crate) slow: bool,
    /// The tools that it needs.
    pub(crate) needs: Vec<String>,
    pub(crate) steps: Vec<Step>,
}

/// A step of a section.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    /// Write a file.
    File { name: String, content: String },
    /// Run a script.
    Script(String),
    /// Run commands, and compare what they print.
    Console(Vec<Command>),
}

/// A command of a `console` block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Command {
    pub(crate) text: String,
    pub(crate) exit_code: i32,
    /// The expected output. Anything, if there are no lines.
    pub(crate) printed: Vec<String>,
}

impl Page {
    pub(crate) fn read(path: &Path) -> Result<Page, String> {
        Page::parse(&fs::read_to_string(path).map_err(|error| error.to_string())?)
    }

    fn parse(text: &str) -> Result<Page, String> {
        let mut introduction = Section::default();
        let mut sections: Vec<Section> = Vec::new();
        let mut lines = text.lines();
        let mut next: Option<String> = None;
        while let Some(line) = lines.next() {
            let section = sections.last_mut().unwrap_or(&mut introduction);
            if let Some(title) = line.strip_prefix("## ") {
                let title = title.trim().to_owned();
                sections.push(Section { title, ..introduction.clone() });
            } else if line == "<!-- run" {
                section.steps.push(Step::Script(until(&mut lines, "-->")?));
            } else if let Some(comment) = line.strip_prefix("<!-- ").filter(|comment| !is_mark(comment)) {
                let Some(directive) = comment.strip_suffix(" -->") else {
                    return Err(format!("`{line}`: expected ` -->` at its end"));
                };
                next = section.take(directive)?.or(next);
            } else if line.starts_with("```") {
                // A page within a page is in a longer fence.
                let language = line.trim_start_matches('`');
                let block = until(&mut lines, &line[..line.len() - language.len()])?;
                section.steps.extend(step(language, block, next.take())?);
            } else if line.trim_start().starts_with("```") || line.strip_prefix("    ").is_some_and(is_command) {
                return Err(format!("`{line}`: a block that is indented is not run"));
            }
        }
        let runs = |section: &Section| section.steps.iter().any(|step| !matches!(step, Step::File { .. }));
        let own = |section: &Section| section.steps.len() > introduction.steps.len() && runs(section);
        let idle = sections.iter().find(|section| section.steps.is_empty()).map(|section| section.title.clone());
        sections.retain(own);
        if sections.is_empty() && runs(&introduction) {
            sections.push(Section { title: "introduction".to_owned(), ..introduction });
        }
        Ok(Page { sections, idle })
    }
}

/// Marks of the parts of a page that commands write.
fn is_mark(comment: &str) -> bool {
    let marks = [
        "chart: ",
        "/chart ",
        "made by ",
        "end of ",
        "suite: ",
        "/suite ",
        "behind: ",
        "behind-real: ",
        "/behind",
        "latency: ",
        "/latency ",
        "rest: ",
        "/rest ",
        "scaling: ",
        "/scaling ",
        "real: ",
        "/real ",
        "table: ",
        "profile: ",
        "/profile ",
        "dynamic: ",
        "/dynamic ",
        "loaders: ",
        "/loaders ",
        "edges: ",
        "libc: ",
        "/libc ",
    ];
    marks.iter().any(|mark| comment.starts_with(mark))
}

impl Section {
    /// Obeys the directive in a comment. Returns a directive about the next block.
    fn take(&mut self, directive: &str) -> Result<Option<String>, String> {
        let (kind, rest) = directive.split_once(": ").ok_or_else(|| format!("`{directive}` is no directive"))?;
        match kind {
            "page" | "section" => {
                for word in rest.split("; ") {
                    match word.split_once(' ') {
                        None if word == "slow" => self.slow = true,
                        Some(("needs", tools)) => self.needs.extend(tools.split(' ').map(str::to_owned)),
                        _ => return Err(format!("`{word}` is neither `slow` nor `needs TOOL...`")),
                    }
                }
                Ok(None)
            }
            "file" | "quotes" | "skip" if !rest.trim().is_empty() => Ok(Some(directive.to_owned())),
            _ => Err(format!("`{directive}` is no directive")),
        }
    }
}

fn until<'l>(lines: &mut impl Iterator<Item = &'l str>, end: &str) -> Result<String, String> {
    let mut text = String::new();
    for line in lines {
        if line == end {
            return Ok(text);
        }
        text.push_str(line);
        text.push('\n');
    }
    Err(format!("a block without `{end}`"))
}

/// Checks that a block is the whole text of a file of this repository.
fn quotes(path: &str, block: &str) -> Result<(), String> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    let text = fs::read_to_string(file).map_err(|error| format!("{path}: {error}"))?;
    if text == block { Ok(()) } else { Err(format!("a block is not what `{path}` holds; it holds\n{text}")) }
}

fn step(language: &str, block: String, directive: Option<String>) -> Result<Option<Step>, String> {
    if let Some(directive) = directive {
        if let Some(path) = directive.strip_prefix("quotes: ") {
            return quotes(path, &block).map(|()| None);
        }
        let file = directive.strip_prefix("file: ");
        return Ok(file.map(|name| Step::File { name: name.to_owned(), content: block }));
    }
    match language {
        "sh" => Ok(Some(Step::Script(block))),
        "console" => commands(&block).map(|commands| Some(Step::Console(commands))),
        // Any other language is only for reading, so it may hold no command.
        "" | "text" | "bash" | "shell" if block.lines().any(is_command) => {
            Err(format!("a command in a block that is not `console`:\n{block}"))
        }
        _ => Ok(None),
    }
}

/// Whether a line looks like a command of ours, or of any kind behind a prompt.
fn is_command(line: &str) -> bool {
    ["$ ", "allograft ", "cargo "].iter().any(|start| line.starts_with(start))
}

fn commands(block: &str) -> Result<Vec<Command>, String> {
    let mut commands: Vec<Command> = Vec::new();
    for line in block.lines() {
        if let Some(text) = line.strip_prefix("$ ") {
            let (text, exit_code) = expected(text)?;
            commands.push(Command { text, exit_code, printed: Vec::new() });
            continue;
        }
        let command = commands.last_mut().ok_or_else(|| format!("`{line}` follows no command"))?;
        match line.strip_prefix("> ").filter(|_| command.printed.is_empty()) {
            Some(more) => {
                let (more, exit_code) = expected(more)?;
                command.text.push('\n');
                command.text.push_str(&more);
                command.exit_code = exit_code;
            }
            None => command.printed.push(line.to_owned()),
        }
    }
    Ok(commands)
}

/// Returns a command line without the comment at its end, and the exit code that the comment names.
fn expected(line: &str) -> Result<(String, i32), String> {
    let Some((text, code)) = line.rsplit_once("# exit code ") else { return Ok((line.trim_end().to_owned(), 0)) };
    let code = code.trim().parse().map_err(|_| format!("`{line}`: which exit code?"))?;
    Ok((text.trim_end().to_owned(), code))
}

/// Checks that pages are parsed as described.
pub(crate) fn self_check() -> Result<(), String> {
    let text = "# T\n\n<!-- page: needs zig -->\n<!-- file: a.c -->\n```c\nint x;\n```\n\
                ## One\n<!-- section: slow; needs go -->\n\
                ```console\n$ cc a.c \\\n> -o a   # exit code 3\nout\n$ ./a\n```\n\
                ## Two\n<!-- run\nls\n-->\n<!-- skip: no -->\n```sh\nfalse\n```\n\
                ````md\n```sh\nfalse\n```\n````\n";
    let page = Page::parse(text)?;
    let [one, two] = page.sections.as_slice() else { return Err("sections".to_owned()) };
    let file = Step::File { name: "a.c".to_owned(), content: "int x;\n".to_owned() };
    let command = |text: &str, exit_code, printed: &[&str]| Command {
        text: text.to_owned(),
        exit_code,
        printed: printed.iter().map(|line| (*line).to_owned()).collect(),
    };
    let console = Step::Console(vec![command("cc a.c \\\n-o a", 3, &["out"]), command("./a", 0, &[])]);
    let sound = (one.title.as_str(), one.slow, one.needs.join(" ").as_str()) == ("One", true, "zig go")
        && one.steps == [file.clone(), console]
        && (two.slow, two.needs.as_slice()) == (false, &["zig".to_owned()][..])
        && two.steps == [file, Step::Script("ls\n".to_owned())];
    if !sound {
        return Err(format!("{one:#?}\n{two:#?}"));
    }
    let one = Page::parse("# T\n<!-- made by x -->\n```sh\nls\n```\n## Prose\n")?;
    let idle = Page::parse("# T\n## Idle\n")?.idle;
    if one.sections.iter().map(|section| &section.title).ne(["introduction"]) || idle.as_deref() != Some("Idle") {
        return Err("a page whose introduction alone runs something".to_owned());
    }
    let quote = |text: &str| Page::parse(&format!("## A\n<!-- quotes: LICENSE-MIT -->\n```text\n{text}```\n"));
    let license = include_str!("../../../../LICENSE-MIT");
    if quote(license).is_err() || quote(&format!("{license}more\n")).is_ok() {
        return Err("what a page quotes".to_owned());
    }
    for wrong in [
        "## A\n```sh\nls\n",
        "## A\n<!-- what: x -->\n",
        "## A\n<!-- skip:  -->\n",
        "## A\n```console\nx\n```\n",
        "## A\n```\nallograft donors\n```\n",
        "## A\n    allograft donors\n",
    ] {
        if Page::parse(wrong).is_ok() {
            return Err(format!("read without complaint: {wrong}"));
        }
    }
    Ok(())
}

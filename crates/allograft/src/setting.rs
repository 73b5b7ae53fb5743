//! Options of donors in the user's spelling, `KEY=VALUE`, and what to say about those that a donor does not have.

use donors::Donor;

use crate::failure::Failure;
use crate::printable::printable;
use crate::similar::similar;

/// Words for what is on or off. An option takes numbers.
const SWITCHES: [&str; 6] = ["on", "off", "yes", "no", "true", "false"];

/// Reads `KEY=VALUE`.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn parse(text: &str) -> Result<(String, i64), String> {
    let (key, value) = text.split_once('=').ok_or("expected KEY=VALUE, such as purge_delay=0")?;
    if key.is_empty() {
        return Err("the key is missing: expected KEY=VALUE, such as purge_delay=0".to_owned());
    }
    Ok((key.to_owned(), number(value)?))
}

/// Reads the value of an option.
///
/// # Errors
/// It is not a number.
pub(crate) fn number(value: &str) -> Result<i64, String> {
    value.parse().map_err(|_| {
        let switch = SWITCHES.iter().any(|word| word.eq_ignore_ascii_case(value));
        let instead = if switch { ": 1 is on, 0 is off" } else { "" };
        format!("`{}` is not a whole number{instead}", printable(value))
    })
}

/// Checks that one of the donors has each option. Which of several donors goes in depends on the host's architecture,
/// and that donor's options are checked again then.
///
/// # Errors
/// Exit code 2 if none of them has an option, or if the value is beyond the range of the only donor. The help names the
/// option that may be meant, or a donor that has it.
pub(crate) fn check(donors: &[&Donor], settings: &[(String, i64)]) -> Result<(), Failure> {
    for (name, value) in settings {
        // Options that cannot be read are a fault of the build, which the graft itself reports.
        let Ok(known) = donors.iter().map(|donor| names(donor)).collect::<Result<Vec<_>, _>>() else { return Ok(()) };
        if !donors.is_empty() && known.iter().flatten().all(|known| known != name) {
            return Err(unknown(name, donors, &known));
        }
        if let [donor] = donors
            && let Ok(options) = &mut donor.options()
            && let Err(error) = format::options::set(options, name, *value)
        {
            return Err(Failure::usage(format!("donor `{}`: {error}", donor.name)).with_help(of_donor(donor)));
        }
    }
    Ok(())
}

/// Where a donor's options are described.
fn of_donor(donor: &Donor) -> String {
    format!("`allograft donors {}` lists its options with their ranges", donor.name)
}

/// The names of the donor's options.
fn names(donor: &Donor) -> Result<Vec<String>, format::OptionsError> {
    Ok(donor.options()?.into_iter().map(|option| option.name).collect())
}

fn unknown(name: &str, donors: &[&Donor], known: &[Vec<String>]) -> Failure {
    let shown = printable(name);
    let message = match (donors, known) {
        ([donor], [known]) => {
            format!("donor `{}`: unknown option `{shown}`; known: {}", donor.name, known.join(", "))
        }
        _ => format!("unknown option `{shown}`: none of the default donors has it"),
    };
    let is_other = |donor: &&Donor| donors.iter().all(|known| known.name != donor.name);
    let having: Vec<&str> = donors::all()
        .iter()
        .filter(is_other)
        .filter(|donor| names(donor).is_ok_and(|known| known.iter().any(|known| known == name)))
        .map(|donor| donor.name)
        .collect();
    let help = match (similar(name, known.iter().flatten().map(String::as_str)), having.as_slice()) {
        (Some(meant), _) => format!("did you mean `{meant}`?"),
        (None, [donor]) => format!("`{donor}` has it"),
        (None, [_, _, ..]) => format!("these donors have it: {}", having.join(", ")),
        (None, []) => match donors {
            [donor] => of_donor(donor),
            _ => "`allograft donors NAME` lists a donor's options with their ranges".to_owned(),
        },
    };
    Failure::usage(message).with_help(help)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(donor: Option<&str>, name: &str) -> (String, String) {
        let donors: Vec<&Donor> = match donor {
            Some(name) => donors::find(name).into_iter().collect(),
            None => donors::defaults().collect(),
        };
        let failure = check(&donors, &[(name.to_owned(), 1)]).unwrap_err();
        assert_eq!(failure.exit_code, 2);
        (failure.message, failure.help)
    }

    /// Every option of every donor, with two letters exchanged, gets the name that was meant.
    #[test]
    fn a_slip_gets_the_name_that_is_meant() {
        for donor in donors::all() {
            for option in donor.options().unwrap() {
                let mut letters: Vec<char> = option.name.chars().collect();
                let at = letters.windows(2).position(|pair| pair[0] != pair[1]).unwrap();
                letters.swap(at, at + 1);
                let slip: String = letters.into_iter().collect();
                let (message, help) = refused(Some(donor.name), &slip);
                assert_eq!(help, format!("did you mean `{}`?", option.name), "{}", donor.name);
                assert!(message.contains(&format!("unknown option `{slip}`; known: ")), "{message}");
                assert!(check(&[donor], &[(option.name, option.value)]).is_ok());
            }
        }
    }

    #[test]
    fn other_names_get_the_donors_that_have_them() {
        assert_eq!(refused(Some("jemalloc"), "narenas").1, "did you mean `arenas`?");
        const HAVING: &str = "these donors have it: hardened, hardened-light, jemalloc";
        assert_eq!(refused(Some("snmalloc"), "arenas").1, HAVING);
        let (message, help) = refused(None, "arenas");
        assert!(message.contains("none of the default donors") && help == HAVING, "{message} {help}");
        let help = refused(Some("snmalloc"), "colour").1;
        assert_eq!(help, "`allograft donors snmalloc` lists its options with their ranges");
        assert!(check(&[], &[("x".to_owned(), 1)]).is_ok());
        let snmalloc = donors::find("snmalloc").unwrap();
        let beyond = check(&[snmalloc], &[("purge_delay".to_owned(), i64::MAX)]).unwrap_err();
        assert!(beyond.message.contains("it takes -1 to ") && beyond.help.contains("donors snmalloc"), "{beyond:?}");
    }

    #[test]
    fn values_are_numbers() {
        assert_eq!(parse("purge_delay=-1"), Ok(("purge_delay".to_owned(), -1)));
        assert_eq!(number("ON").unwrap_err(), "`ON` is not a whole number: 1 is on, 0 is off");
        assert_eq!(number("soon").unwrap_err(), "`soon` is not a whole number");
        assert!(parse("purge_delay").is_err() && parse("=1").is_err());
    }
}

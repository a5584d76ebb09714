// SPDX-License-Identifier: Apache-2.0
//! What a client of Ceph may ask of the monitors, as far as breaking locks goes. The disk of a guest
//! is locked by whoever has it open; the lock of a dead host is broken by having the cluster refuse
//! that host (`osd blocklist add`), and a client that may not ask for that waits for ever.

/// What capabilities say about breaking locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Locks {
    /// It may break them.
    Breaks,
    /// It may not.
    Cannot,
    /// It could before Ceph 16, where the command was called `osd blacklist`, and cannot since.
    CouldOnce,
}

/// What the capabilities of a client for the monitors (`caps mon`) let it do.
pub(crate) fn locks(caps: &str) -> Locks {
    let grants: Vec<Vec<Word>> = grants(caps);
    let mut all = Rights::default();
    for grant in &grants {
        let rights = rights(grant, "osd blocklist", "blocklistop");
        all.read |= rights.read;
        all.write |= rights.write;
    }
    if all.read && all.write {
        return Locks::Breaks;
    }
    let once = |grant: &Vec<Word>| rights(grant, "osd blacklist", "blacklistop").write;
    if grants.iter().any(once) {
        Locks::CouldOnce
    } else {
        Locks::Cannot
    }
}

/// What the command needs.
#[derive(Clone, Copy, Debug, Default)]
struct Rights {
    read: bool,
    write: bool,
}

impl Rights {
    const ALL: Self = Self {
        read: true,
        write: true,
    };

    /// `*`, `all`, or letters.
    fn parse(text: &str) -> Self {
        match text {
            "*" | "all" => Self::ALL,
            letters => Self {
                read: letters.contains('r'),
                write: letters.contains('w'),
            },
        }
    }
}

/// A part of a grant.
#[derive(Debug, PartialEq, Eq)]
enum Word {
    Text(String),
    /// `=`, which stands between a key and its value, and may stand for a space.
    Is,
}

/// What one grant gives: `[allow] profile NAME`, `allow service NAME RIGHTS`, `allow command NAME [with ...]` or
/// `allow RIGHTS`. A network at its end narrows from where it is used, which is not judged here.
fn rights(grant: &[Word], command: &str, operation: &str) -> Rights {
    let mut words = grant.iter().filter_map(|word| match word {
        Word::Text(text) => Some(text.as_str()),
        Word::Is => None,
    });
    let mut next = || words.next().unwrap_or_default();
    let first = match next() {
        "allow" => next(),
        other => other,
    };
    match first {
        "profile" if opens(next()) => Rights::ALL,
        "profile" => Rights::default(),
        "service" => match next() {
            "osd" => Rights::parse(next()),
            _ => Rights::default(),
        },
        "command" if next() == command && permits(grant, operation) => Rights::ALL,
        "command" => Rights::default(),
        letters => Rights::parse(letters),
    }
}

/// Profiles that contain the command.
fn opens(profile: &str) -> bool {
    profile.starts_with("rbd")
        || matches!(
            profile,
            "simple-rados-client-with-blocklist" | "read-write" | "osd" | "mds" | "mgr"
        )
}

/// Whether the conditions of a grant (`with ...`) let a client have any address refused. A condition that cannot be
/// judged is one that forbids: a false alarm is looked at, a missing one is not.
fn permits(grant: &[Word], operation: &str) -> bool {
    let text = |n: usize| match grant.get(n) {
        Some(Word::Text(text)) => text.as_str(),
        _ => "",
    };
    let of = |key: &str| grant.iter().position(|word| *word == Word::Text(key.to_owned()));
    let adds = of(operation).is_none_or(|n| match grant.get(n + 1) {
        Some(Word::Is) => text(n + 2) == "add",
        _ => text(n + 1) == "prefix" && "add".starts_with(text(n + 2)),
    });
    // The profile's own condition is such an expression.
    let anybody = of("addr").is_none_or(|n| text(n + 1) == "regex");
    adds && anybody
}

/// Grants are parted by commas or semicolons, words by blanks; quotes keep together what belongs together.
fn grants(caps: &str) -> Vec<Vec<Word>> {
    let mut grants = vec![Vec::new()];
    let mut letters = caps.chars().peekable();
    let mut push = |word: Option<Word>| match word {
        Some(word) => {
            if let Some(last) = grants.last_mut() {
                last.push(word);
            }
        }
        None => grants.push(Vec::new()),
    };
    while let Some(letter) = letters.next() {
        match letter {
            ',' | ';' => push(None),
            '=' => push(Some(Word::Is)),
            '"' | '\'' => {
                let quoted = letters.by_ref().take_while(|other| *other != letter);
                push(Some(Word::Text(quoted.collect())));
            }
            blank if blank.is_whitespace() => {}
            first => {
                let mut word = String::from(first);
                let ends = |c: &char| c.is_whitespace() || matches!(c, ',' | ';' | '=' | '"' | '\'');
                while let Some(more) = letters.next_if(|c| !ends(c)) {
                    word.push(more);
                }
                push(Some(Word::Text(word)));
            }
        }
    }
    grants
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each of these was given to a client of a monitor of Ceph 16.2, which then asked for `osd blocklist add`.
    #[test]
    fn capabilities_are_read_as_monitors_read_them() {
        for caps in [
            "allow *",
            "allow all",
            "allow rwx",
            "allow rw",
            "allow service osd rw",
            "allow service=osd rw",
            "allow command \"osd blocklist\"",
            "allow r; allow command 'osd blocklist'",
            "allow r, allow command \"osd blocklist\" with blocklistop=add",
            "allow r, allow command \"osd blocklist\" with addr regex \"^[^/]+/[0-9]+$\" blocklistop=add",
            "profile rbd",
            "profile=rbd",
            "allow profile rbd",
            "profile \"rbd\"",
            "profile rbd network 127.0.0.0/8",
            "profile rbd-mirror",
            "profile rbd-read-only",
            "profile simple-rados-client-with-blocklist",
            "profile read-write",
            "profile osd",
            "profile mds",
            "profile mgr",
        ] {
            assert_eq!(locks(caps), Locks::Breaks, "{caps}");
        }
        for caps in [
            "",
            "allow r",
            "allow service osd r",
            "allow service mon rw",
            "allow r, allow command \"osd blocklist\" with blocklistop=rm",
            "allow command \"osd blocklist\" with addr=10.0.0.1:0/1",
            "profile simple-rados-client",
            "profile read-only",
            "profile mon",
            "profile fs-client",
            "profile crash",
        ] {
            assert_eq!(locks(caps), Locks::Cannot, "{caps}");
        }
        for caps in [
            "allow command \"osd blacklist\"",
            "allow r, allow command \"osd blacklist\"",
        ] {
            assert_eq!(locks(caps), Locks::CouldOnce, "{caps}");
        }
    }

    #[test]
    fn rights_of_several_grants_add_up() {
        assert_eq!(locks("allow r, allow service osd w"), Locks::Breaks);
        assert_eq!(locks("allow r, allow service mds w"), Locks::Cannot);
    }

    #[test]
    fn anything_may_stand_there() {
        for caps in [
            "'",
            "allow",
            "= = =",
            ",,;",
            "allow command",
            "allow command \"osd blocklist",
        ] {
            let _ = locks(caps);
        }
        assert_eq!(
            locks("allow command \"osd blocklist\" with blocklistop"),
            Locks::Cannot
        );
    }
}

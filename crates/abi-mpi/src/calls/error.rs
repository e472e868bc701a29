//! Error classes and codes: the standard's, codes of failed calls, and a program's own (MPI 5.0, sections 9.4 and 9.5).

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI32, Ordering};

use ffi::{Out, Text, lock};

use crate::answer::{Answer, Fault};
use crate::constants as c;
use crate::handler::{class_of, text_of};
use crate::memory::put_text;

/// A class or code that the program added.
struct Added {
    /// The class of a code; a class is its own.
    class: i32,
    text: String,
}

static ADDED: Mutex<BTreeMap<i32, Added>> = Mutex::new(BTreeMap::new());

/// The attribute `MPI_LASTUSEDCODE`; programs read it through its address.
pub(crate) static LAST_USED: AtomicI32 = AtomicI32::new(c::MPI_ERR_LASTCODE);

fn add(class: Option<i32>) -> i32 {
    let mut added = lock(&ADDED);
    let code = LAST_USED.load(Ordering::Relaxed) + 1;
    added.insert(code, Added { class: class.unwrap_or(code), text: String::new() });
    LAST_USED.store(code, Ordering::Relaxed);
    code
}

/// Removes an added class or code; an error unless `allowed` (a class without codes, a code without a text).
fn remove_added(code: i32, argument: &str, allowed: impl Fn(i32, &BTreeMap<i32, Added>) -> bool) -> Answer {
    let mut added = lock(&ADDED);
    if !added.contains_key(&code) || !allowed(code, &added) {
        return Err(Fault::new(c::MPI_ERR_ARG, format!("{argument}: {code} cannot be removed")));
    }
    added.remove(&code);
    let last = added.keys().next_back().copied().unwrap_or(c::MPI_ERR_LASTCODE);
    LAST_USED.store(last, Ordering::Relaxed);
    Ok(())
}

/// MPI 5.0, section 9.5.1.
pub(crate) fn add_error_class(errorclass: Out<i32>) -> Answer {
    errorclass.set(add(None));
    Ok(())
}

/// MPI 5.0, section 9.5.1.
pub(crate) fn add_error_code(errorclass: i32, errorcode: Out<i32>) -> Answer {
    class(errorclass)
        .filter(|class| *class == errorclass)
        .ok_or_else(|| unknown("errorclass", errorclass))?;
    errorcode.set(add(Some(errorclass)));
    Ok(())
}

/// MPI 5.0, section 9.5.1.
pub(crate) fn add_error_string(errorcode: i32, string: Text) -> Answer {
    let text = string.get().ok_or_else(|| Fault::new(c::MPI_ERR_ARG, "string: it is NULL"))?;
    match lock(&ADDED).get_mut(&errorcode) {
        Some(added) => added.text = text,
        None => return Err(unknown("errorcode", errorcode)),
    }
    Ok(())
}

/// MPI 5.0, section 9.5.1.
pub(crate) fn remove_error_class(errorclass: i32) -> Answer {
    remove_added(errorclass, "errorclass", |class, added| {
        added.iter().all(|(code, other)| (other.class == class) == (*code == class))
            && added.get(&class).is_some_and(|added| added.text.is_empty())
    })
}

/// MPI 5.0, section 9.5.1.
pub(crate) fn remove_error_code(errorcode: i32) -> Answer {
    remove_added(errorcode, "errorcode", |code, added| {
        added.get(&code).is_some_and(|added| added.class != code && added.text.is_empty())
    })
}

/// MPI 5.0, section 9.5.1.
pub(crate) fn remove_error_string(errorcode: i32) -> Answer {
    match lock(&ADDED).get_mut(&errorcode) {
        Some(added) if !added.text.is_empty() => added.text.clear(),
        _ => return Err(unknown("errorcode", errorcode)),
    }
    Ok(())
}

fn unknown(argument: &str, code: i32) -> Fault {
    Fault::new(c::MPI_ERR_ARG, format!("{argument}: there is no {code}"))
}

/// The class of a code.
pub(crate) fn class(code: i32) -> Option<i32> {
    if code > c::MPI_ERR_LASTCODE {
        return lock(&ADDED).get(&code).map(|added| added.class);
    }
    let is_tool =
        (c::MPI_T_ERR_CANNOT_INIT..=c::MPI_T_ERR_PVAR_NO_ATOMIC).contains(&code) && text_of(code).is_none();
    if is_tool {
        return Some(code);
    }
    (code >= 0).then(|| class_of(code)).filter(|class| mpi::Class(*class).about().is_some())
}

/// MPI 5.0, section 9.4.
pub(crate) fn error_class(errorcode: i32, errorclass: Out<i32>) -> Answer {
    errorclass.set(class(errorcode).ok_or_else(|| unknown("errorcode", errorcode))?);
    Ok(())
}

/// The text of a code. `None` if there is no such code.
pub(crate) fn text(code: i32) -> Option<String> {
    let class = class(code)?;
    let added = lock(&ADDED).get(&code).map(|added| added.text.clone());
    let about = || mpi::Class(class).about().unwrap_or("An error of the tool interface.").to_owned();
    Some(added.or_else(|| text_of(code)).unwrap_or_else(about))
}

/// MPI 5.0, section 9.3.5.
pub(crate) fn error_string(errorcode: i32, string: Out<u8>, resultlen: Out<i32>) -> Answer {
    let text = text(errorcode).ok_or_else(|| unknown("errorcode", errorcode))?;
    resultlen.set(put_text(string, &text, c::MPI_MAX_ERROR_STRING as usize));
    Ok(())
}

//! Requests that the server answers immediately: versions, limits, keys and names.

use super::{
    KEY_ROOM, KEYS_MAX, NAME_ROOM, NAMES_MAX, Phase, Published, RankId, Server, VALUE_ROOM, Violation,
};
use crate::spawn::ACCEPTS_ENCODED;
use crate::wire::{Draft, Framing, Message, excerpt};

/// A positive answer.
fn success_reply(name: &str) -> Draft {
    Draft::new(Framing::Lines, name).with("rc", 0)
}

/// A refusal, with a reason in one word.
fn failure_reply(name: &str, why: &str) -> Draft {
    Draft::new(Framing::Lines, name).with("rc", 1).with("msg", why)
}

fn reply(name: &str, done: Result<(), &str>) -> Draft {
    done.map_or_else(|why| failure_reply(name, why), |()| success_reply(name))
}

impl Server {
    /// Handles a rank's protocol version. A rank that requests another version may retry with this one.
    pub(super) fn init(&mut self, id: RankId, message: &Message<'_>) -> Result<(), Violation> {
        let is_spoken = message.need_number::<u32>("pmi_version")? == 1;
        let Some(rank) = self.rank_mut(id) else { return Ok(()) };
        if is_spoken {
            rank.phase = Phase::Joined;
        }
        let answer = reply("response_to_init", if is_spoken { Ok(()) } else { Err("speak_PMI_1") });
        rank.outbox.push(answer.with("pmi_version", 1).with("pmi_subversion", 2).finish());
        Ok(())
    }

    /// Marks a rank as finalized: it will enter no more barriers.
    pub(super) fn finalize(&mut self, id: RankId) -> Result<(), Violation> {
        let Some(job) = self.jobs.get_mut(&id.job) else { return Ok(()) };
        let rank = &mut job.ranks[id.rank as usize];
        rank.phase = Phase::Finalized;
        rank.outbox.push(success_reply("finalize_ack").finish());
        job.leave_barriers(id.rank);
        self.events.push_back(super::Event::Finalized(id));
        Ok(())
    }

    /// Handles the other requests that are answered immediately.
    pub(super) fn answer(&mut self, id: RankId, message: &Message<'_>) -> Result<(), Violation> {
        let Some(job) = self.jobs.get(&id.job) else { return Ok(()) };
        let answer = match message.name() {
            "get_maxes" => success_reply("maxes")
                .with("kvsname_max", NAME_ROOM)
                .with("keylen_max", KEY_ROOM)
                .with("vallen_max", VALUE_ROOM)
                .with(ACCEPTS_ENCODED, 1),
            "get_my_kvsname" => success_reply("my_kvsname").with("kvsname", &job.name),
            "get_appnum" => success_reply("appnum").with("appnum", job.ranks[id.rank as usize].place.appnum),
            "get_universe_size" => {
                success_reply("universe_size").with("size", job.universe_size.map_or(-1, i64::from))
            }
            "get" => self.get(id, message)?,
            "put" => reply("put_result", self.put(id, message)?),
            "publish_name" => reply("publish_result", self.publish(id, message)?),
            "unpublish_name" => reply("unpublish_result", self.unpublish(message)?),
            "lookup_name" => match self.names.get(message.need("service")?) {
                Some(published) => success_reply("lookup_result").with("port", &published.port),
                None => failure_reply("lookup_result", "no_such_service"),
            },
            other => return Err(Violation::Unknown(excerpt(other))),
        };
        if let Some(rank) = self.rank_mut(id) {
            rank.outbox.push(answer.finish());
        }
        Ok(())
    }

    fn get(&self, id: RankId, message: &Message<'_>) -> Result<Draft, Violation> {
        const NAME: &str = "get_result";
        let Some(job) = self.jobs.get(&id.job).filter(|job| message.get("kvsname") == Some(&job.name)) else {
            return Ok(failure_reply(NAME, "no_such_kvsname"));
        };
        let value = match message.need("key")? {
            "PMI_process_mapping" => job.mapping.as_ref(),
            key => job.space.get(key),
        };
        Ok(value.map_or_else(
            || failure_reply(NAME, "no_such_key"),
            |value| success_reply(NAME).with("value", value),
        ))
    }

    fn put(&mut self, id: RankId, message: &Message<'_>) -> Result<Result<(), &'static str>, Violation> {
        let (key, value) = (message.need("key")?, message.need("value")?);
        let Some(job) = self.jobs.get_mut(&id.job).filter(|job| message.get("kvsname") == Some(&job.name))
        else {
            return Ok(Err("no_such_kvsname"));
        };
        if key.starts_with("PMI_") {
            return Ok(Err("keys_with_PMI_are_reserved"));
        }
        if !(1..KEY_ROOM).contains(&key.len()) || !(1..VALUE_ROOM).contains(&value.len()) {
            return Ok(Err("key_or_value_empty_or_too_long"));
        }
        if let Some(old) = job.space.get_mut(key) {
            value.clone_into(old);
            return Ok(Ok(()));
        }
        let rank = &mut job.ranks[id.rank as usize];
        if rank.keys == KEYS_MAX {
            return Ok(Err("too_many_keys"));
        }
        rank.keys += 1;
        job.space.insert(key.to_owned(), value.to_owned());
        Ok(Ok(()))
    }

    fn publish(&mut self, id: RankId, message: &Message<'_>) -> Result<Result<(), &'static str>, Violation> {
        let (service, port) = (message.need("service")?, message.need("port")?);
        if !(1..VALUE_ROOM).contains(&service.len()) || !(1..VALUE_ROOM).contains(&port.len()) {
            return Ok(Err("service_or_port_empty_or_too_long"));
        }
        if self.names.contains_key(service) {
            return Ok(Err("service_is_published"));
        }
        let Some(rank) = self.rank_mut(id) else { return Ok(Ok(())) };
        if rank.names == NAMES_MAX {
            return Ok(Err("too_many_names"));
        }
        rank.names += 1;
        self.names.insert(service.to_owned(), Published { port: port.to_owned(), by: id });
        Ok(Ok(()))
    }

    fn unpublish(&mut self, message: &Message<'_>) -> Result<Result<(), &'static str>, Violation> {
        let Some(published) = self.names.remove(message.need("service")?) else {
            return Ok(Err("no_such_service"));
        };
        if let Some(rank) = self.rank_mut(published.by) {
            rank.names -= 1;
        }
        Ok(Ok(()))
    }
}

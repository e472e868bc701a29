//! Creates communicators from others: duplicated, split, from some of the members, from two groups, and merged (MPI 5.0, sections
//! 7.4.2 and 7.6.2).
//!
//! In all cases the first member names the new communicator ([`crate::comm::context`]) and sends the name to the others.

use crate::comm::communicator::Comm;
use crate::comm::context::{Context, Plane};
use crate::comm::group::Group;
use crate::comm::members::GroupDescription;
use crate::comm::oob::OobChannel;
use crate::error::{Class, Error, Result};
use crate::info::Info;
use crate::status::UNDEFINED;
use crate::topo::topology::Topology;

/// The property by which [`Comm::split_type`] splits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SplitType {
    /// None: this process gets no communicator (`MPI_UNDEFINED`).
    Undefined,
    /// The processes of one host, which can share memory (`MPI_COMM_TYPE_SHARED`).
    Shared,
}

impl Comm {
    /// Agrees with all members, of both groups if there are two, on a new name.
    pub(crate) fn agree_context(&self) -> Result<Context> {
        let sent = if self.rank() == 0 { self.core().new_context()?.number().to_le_bytes() } else { [0; 8] };
        let sent = match self.remote_group() {
            Some(_) => self.agree_between_groups(&sent)?,
            None => sent.to_vec(),
        };
        parse_context(&self.oob()?.broadcast(self.rank(), &sent)?)
    }

    /// Chooses, at both first members, the name from the group whose first member comes first.
    fn agree_between_groups(&self, sent: &[u8]) -> Result<Vec<u8>> {
        let received = self.exchange_between_leaders(sent)?;
        let own_first = self.is_before(self.group().process(0), self.peers().process(0));
        Ok(if own_first { sent.to_vec() } else { received })
    }

    /// Whether a process comes before another, in an order that is the same at both.
    fn is_before(&self, process: Option<u32>, other: Option<u32>) -> bool {
        let identity =
            |process: u32| self.core().with(|engine| engine.transport.strangers().identity(process));
        process.map(identity) < other.map(identity)
    }

    /// Exchanges bytes between the first members of both groups; returns nothing at other members.
    fn exchange_between_leaders(&self, sent: &[u8]) -> Result<Vec<u8>> {
        let tag = self.next_collective_tag();
        if self.rank() != 0 {
            return Ok(Vec::new());
        }
        let oob = OobChannel::new(self.core(), self.context(Plane::Collective)?, tag, self.peers());
        oob.send(0, sent)?;
        oob.receive(0)
    }

    /// Exchanges `group` for the other side's group, through the first members of both sides.
    fn exchange_groups(&self, group: &Group) -> Result<GroupDescription> {
        let (core, none) = (self.core(), || Error::new(Class::INTERN, "a side has no first member"));
        let (mine, other) =
            (self.group().process(0).ok_or_else(none)?, self.peers().process(0).ok_or_else(none)?);
        let received = match self.rank() {
            0 => {
                self.exchange_between_leaders(&GroupDescription::new(core, group)?.bytes_for(core, other)?)?
            }
            _ => self.exchange_between_leaders(&[])?,
        };
        let oob = self.oob()?;
        if self.rank() != 0 {
            return GroupDescription::parse_from(core, mine, &oob.receive(0)?);
        }
        let theirs = GroupDescription::parse_from(core, other, &received);
        for (rank, process) in (1..self.size()).zip(&self.group().members()[1..]) {
            // An empty message is an error at its receiver, too.
            let bytes = theirs.as_ref().map_or(Ok(Vec::new()), |theirs| theirs.bytes_for(core, *process));
            oob.send(rank, &bytes?)?;
        }
        theirs
    }

    /// Creates a copy in a context of its own, with the attributes that the copy functions return (`MPI_Comm_dup`). Collective
    /// (MPI 5.0, section 7.4.2).
    ///
    /// # Errors
    /// A copy function's; [`Class::PROC_ABORTED`] when a member is lost.
    pub fn dup(&self) -> Result<Self> {
        self.dup_with(None)
    }

    /// Creates a copy as [`Comm::dup`] does, with other hints (MPI 5.0, section 7.4.2).
    ///
    /// # Errors
    /// As [`Comm::dup`].
    pub fn dup_with_info(&self, info: Info) -> Result<Self> {
        self.dup_with(Some(info))
    }

    fn dup_with(&self, info: Option<Info>) -> Result<Self> {
        let context = self.agree_context()?;
        let copy = self.copy(Some(context))?;
        self.copy_properties_to(&copy, info)?;
        Ok(copy)
    }

    /// Creates one communicator for each colour, with members ordered by key, then by rank; none for [`UNDEFINED`]. For an
    /// intercommunicator, each group is split, and a colour that only one group has creates none. Collective
    /// (MPI 5.0, section 7.4.2).
    ///
    /// # Errors
    /// [`Class::ARG`] for another negative colour; [`Class::PROC_ABORTED`] when a member is lost.
    pub fn split(&self, color: i32, key: i32) -> Result<Option<Self>> {
        self.split_into(color, key, None)
    }

    /// Splits as [`Comm::split`] does, with a topology for this process's new communicator.
    pub(crate) fn split_into(
        &self,
        color: i32,
        key: i32,
        topology: Option<Topology>,
    ) -> Result<Option<Self>> {
        if color < 0 && color != UNDEFINED {
            return Err(Error::new(
                Class::ARG,
                format_args!("colour {color} is negative, and not MPI_UNDEFINED"),
            ));
        }
        let wish = [color.to_le_bytes(), key.to_le_bytes()].concat();
        let wishes = self.oob()?.allgather(self.rank(), &wish)?;
        let context = self.agree_context()?;
        let group = group_of_color(self.group(), &wishes, color)?;
        let remote = match self.remote_group() {
            None => None,
            Some(others) => {
                let theirs = self.exchange_between_leaders(&wishes)?;
                Some(group_of_color(others, &self.oob()?.broadcast(self.rank(), &theirs)?, color)?)
            }
        };
        let nobody = remote.as_ref().is_some_and(|remote| remote.size() == 0);
        if color == UNDEFINED || nobody {
            return Ok(None);
        }
        self.derive(context, group, remote, topology).map(Some)
    }

    /// Creates a communicator of some of this one's processes, with its error handler.
    pub(crate) fn derive(
        &self,
        context: Context,
        group: Group,
        remote: Option<Group>,
        topology: Option<Topology>,
    ) -> Result<Self> {
        let child = Self::new(self.core(), Some(context), group, remote, topology)?;
        child.set_errhandler(self.errhandler());
        Ok(child)
    }

    /// Splits as [`Comm::split`] does, by a property of the processes. Collective (MPI 5.0, section 7.4.2).
    ///
    /// # Errors
    /// As [`Comm::split`].
    pub fn split_type(&self, kind: &SplitType, key: i32) -> Result<Option<Self>> {
        if *kind == SplitType::Undefined {
            return self.split(UNDEFINED, key);
        }
        let node =
            |process: u32| self.core().with(|engine| engine.transport.address_of(process)).map(|a| a.node);
        let mine = node(self.core().bootstrap().rank())?;
        let mut color = self.rank();
        for (rank, process) in (0..self.rank()).zip(self.group().members()) {
            if node(*process)? == mine {
                color = rank;
                break;
            }
        }
        self.split(color, key)
    }

    /// Gathers bytes from all members at all members, by rank (an allgather); all pass equally many bytes. For an
    /// intercommunicator, within each group. Collective.
    ///
    /// # Errors
    /// [`Class::NOT_SAME`] if the lengths differ; [`Class::PROC_ABORTED`] when a member is lost.
    pub fn allgather_bytes(&self, bytes: &[u8]) -> Result<Vec<u8>> {
        self.oob()?.allgather(self.rank(), bytes)
    }

    /// Creates a communicator of some of the members: each calls it with the group that it belongs to, the others with any other
    /// group (`MPI_Comm_create`). Collective over this communicator (MPI 5.0, section 7.4.2).
    ///
    /// # Errors
    /// [`Class::GROUP`] for a group with members that this communicator does not have; [`Class::PROC_ABORTED`].
    pub fn create(&self, group: &Group) -> Result<Option<Self>> {
        self.check_subgroup(group)?;
        let context = self.agree_context()?;
        let remote = match self.remote_group() {
            None => None,
            Some(_) => {
                let theirs = self.exchange_groups(group)?;
                Some(theirs.group(self.core())?)
            }
        };
        let member = group.rank_of(self.core().bootstrap().rank()).is_some();
        let nobody = remote.as_ref().is_some_and(|remote| remote.size() == 0);
        if !member || nobody { Ok(None) } else { self.derive(context, group.clone(), remote, None).map(Some) }
    }

    /// Creates a communicator as [`Comm::create`] does, but collective over the group alone; `tag` distinguishes concurrent calls
    /// by several threads (MPI 5.0, section 7.4.2).
    ///
    /// # Errors
    /// As [`Comm::create`]; [`Class::COMM`] for an intercommunicator.
    pub fn create_group(&self, group: &Group, tag: i32) -> Result<Option<Self>> {
        if self.is_inter() {
            return Err(Error::new(Class::COMM, "MPI_Comm_create_group needs an intracommunicator"));
        }
        self.check_subgroup(group)?;
        let Some(me) = group.rank_of(self.core().bootstrap().rank()) else { return Ok(None) };
        let name = if me == 0 { self.core().new_context()?.number().to_le_bytes() } else { [0; 8] };
        let oob = OobChannel::new(self.core(), self.context(Plane::CommCreate)?, tag, group);
        let context = parse_context(&oob.broadcast(me, &name)?)?;
        self.derive(context, group.clone(), None, None).map(Some)
    }

    fn check_subgroup(&self, group: &Group) -> Result<()> {
        match group.members().iter().find(|process| self.group().rank_of(**process).is_none()) {
            None => Ok(()),
            Some(_) => {
                Err(Error::new(Class::GROUP, "the group has members that the communicator does not have"))
            }
        }
    }

    /// Creates an intercommunicator between this communicator's members and those of another, whose leader is `remote_leader` of
    /// `peer`; these two arguments matter only at this side's leader. `tag` distinguishes concurrent calls by the same leaders.
    /// Collective over both (MPI 5.0, section 7.6.2).
    ///
    /// # Errors
    /// [`Class::RANK`] for leaders that do not exist; [`Class::COMM`] for an intercommunicator, or without `peer` at the leader;
    /// [`Class::GROUP`] for two sides with a common member; [`Class::PROC_ABORTED`].
    pub fn intercomm_create(
        &self,
        leader: i32,
        peer: Option<&Self>,
        remote_leader: i32,
        tag: i32,
    ) -> Result<Self> {
        if self.is_inter() {
            return Err(Error::new(Class::COMM, "MPI_Intercomm_create needs an intracommunicator"));
        }
        if self.group().process(leader).is_none() {
            return Err(Error::new(Class::RANK, format_args!("the leader, rank {leader}, does not exist")));
        }
        let oob = self.oob()?;
        let core = self.core();
        let (context, members) = if self.rank() == leader {
            let agreed = self.agree_as_leader(peer, remote_leader, tag);
            for (rank, process) in
                (0..self.size()).zip(self.group().members()).filter(|(rank, _)| *rank != leader)
            {
                // An empty message reports a failure to the other members.
                let bytes = agreed.as_ref().map_or(Ok(Vec::new()), |(context, members)| {
                    let context = context.number().to_le_bytes();
                    members.bytes_for(core, *process).map(|members| [&context[..], &members].concat())
                });
                oob.send(rank, &bytes?)?;
            }
            agreed?
        } else {
            let none = || Error::new(Class::OTHER, "the leaders of the two sides could not agree");
            let (received, from) = (oob.receive(leader)?, self.group().process(leader).ok_or_else(none)?);
            let (context, members) = received.split_at_checked(8).ok_or_else(none)?;
            (parse_context(context)?, GroupDescription::parse_from(core, from, members)?)
        };
        let remote = members.group(core)?;
        if self.group().intersection(&remote).size() > 0 {
            return Err(Error::new(Class::GROUP, "the two sides have a common member"));
        }
        self.derive(context, self.group().clone(), Some(remote), None)
    }

    /// Agrees with the other leader on the name, and exchanges the members.
    fn agree_as_leader(
        &self,
        peer: Option<&Self>,
        remote_leader: i32,
        tag: i32,
    ) -> Result<(Context, GroupDescription)> {
        let peer = peer.ok_or_else(|| {
            Error::new(Class::COMM, "the leader needs a communicator with the other leader")
        })?;
        let none = || {
            Error::new(
                Class::RANK,
                format_args!(
                    "the remote leader, rank {remote_leader}, does not exist in the peer communicator"
                ),
            )
        };
        let other = peer.peers().process(remote_leader).ok_or_else(none)?;
        let oob = OobChannel::new(self.core(), peer.context(Plane::CommCreate)?, tag, peer.peers());
        let (core, name) = (self.core(), self.core().new_context()?);
        let members = GroupDescription::new(core, self.group())?.bytes_for(core, other)?;
        oob.send(remote_leader, &[&name.number().to_le_bytes()[..], &members].concat())?;
        let received = oob.receive(remote_leader)?;
        let Some((their_name, members)) = received.split_at_checked(8) else {
            return Err(Error::new(Class::OTHER, "the remote leader sent an empty message"));
        };
        let own_first = self.is_before(Some(core.bootstrap().rank()), Some(other));
        let name = if own_first { name } else { parse_context(their_name)? };
        Ok((name, GroupDescription::parse_from(core, other, members)?))
    }

    /// Creates an intracommunicator of both groups. The group that passes `high` comes last; if both pass the same, the group whose
    /// first member has the higher number. Collective (MPI 5.0, section 7.6.2).
    ///
    /// # Errors
    /// [`Class::COMM`] for an intracommunicator; [`Class::PROC_ABORTED`].
    pub fn intercomm_merge(&self, high: bool) -> Result<Self> {
        let none = || Error::new(Class::COMM, "only an intercommunicator can be merged");
        let remote = self.remote_group().ok_or_else(none)?;
        let context = self.agree_context()?;
        let theirs = self.exchange_between_leaders(&[u8::from(high)])?;
        let theirs = self.oob()?.broadcast(self.rank(), &theirs)?;
        let other_high = theirs.first() == Some(&1);
        let is_lower = self.is_before(self.group().process(0), remote.process(0));
        let first = if high == other_high { is_lower } else { !high };
        let (front, back) = if first { (self.group(), remote) } else { (remote, self.group()) };
        self.derive(context, front.union(back)?, None, None)
    }
}

/// Decodes a name.
pub(crate) fn parse_context(bytes: &[u8]) -> Result<Context> {
    let wrong = |_| Error::new(Class::NOT_SAME, "the members have called different operations");
    Ok(Context::from_number(u64::from_le_bytes(bytes.try_into().map_err(wrong)?)))
}

/// The members that passed this colour, in the order of the new communicator.
fn group_of_color(group: &Group, wishes: &[u8], color: i32) -> Result<Group> {
    let int = |four: &[u8]| four.try_into().map(i32::from_le_bytes).unwrap_or(UNDEFINED);
    let wishes = wishes.chunks_exact(8).map(|wish| (int(&wish[..4]), int(&wish[4..])));
    let mut chosen: Vec<(i32, u32)> = wishes
        .zip(group.members())
        .filter(|((theirs, _), _)| *theirs == color)
        .map(|((_, key), process)| (key, *process))
        .collect();
    // The sort is stable: equal keys stay in the order of ranks.
    chosen.sort_by_key(|(key, _)| *key);
    Group::new(chosen.into_iter().map(|(_, process)| process).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_are_split_by_key_then_rank() {
        let wish = |color: i32, key: i32| [color.to_le_bytes(), key.to_le_bytes()].concat();
        let wishes = [wish(1, 5), wish(2, 0), wish(1, -3), wish(1, 5), wish(UNDEFINED, 0)].concat();
        let group = Group::new(vec![10, 11, 12, 13, 14]).expect("distinct");
        let of = |color| group_of_color(&group, &wishes, color).expect("distinct").members().to_vec();
        assert_eq!((of(1), of(2), of(3)), (vec![12, 10, 13], vec![11], vec![]));
    }
}

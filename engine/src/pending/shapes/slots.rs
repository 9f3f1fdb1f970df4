//! The slots that a reservation for a shape takes. There are few sets of them, and each has a number.

use crate::api::slot::ReservationSlot;
use crate::pending::shapes::{AtGeneration, RoomKey, ShapeId, Shapes};
use std::collections::BTreeSet;

/// Names a set of slots that reservations take. The default is that of shapes for which it is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct SlotSetId(usize);

impl Shapes {
    /// The slots that a reservation for it takes, where that is known.
    pub(crate) fn scopes(&self, id: ShapeId) -> Option<&BTreeSet<ReservationSlot>> {
        self.slots_of(self.slot_set(id))
    }

    /// The set of slots that a reservation for it takes.
    pub(crate) fn slot_set(&self, id: ShapeId) -> SlotSetId {
        let slot = self.slots.get(id.0).and_then(Option::as_ref);
        slot.map_or(SlotSetId::default(), |slot| slot.slots)
    }

    /// The slots of a set, if it is known.
    pub(crate) fn slots_of(&self, set: SlotSetId) -> Option<&BTreeSet<ReservationSlot>> {
        self.slot_sets.get(set.0.checked_sub(1)?)
    }

    /// Returns true if a reservation for some shape may take slots of more than one class of pools.
    pub(crate) fn are_of_several_classes(&self) -> bool {
        self.of_several_classes
    }

    /// The number of a set of slots.
    pub(in crate::pending) fn set_of(&mut self, slots: &BTreeSet<ReservationSlot>) -> SlotSetId {
        let known = self.slot_sets.iter().position(|known| known == slots);
        let index = known.unwrap_or(self.slot_sets.len());
        if known.is_none() {
            self.slot_sets.push(slots.clone());
        }
        SlotSetId(index + 1)
    }

    /// Notes the set of slots that a reservation for a shape takes. Whether it has changed.
    pub(in crate::pending) fn note_slot_set(&mut self, id: ShapeId, set: SlotSetId) -> bool {
        let is_several = self.slots_of(set).is_some_and(|slots| slots.len() > 1);
        let Some(Some(slot)) = self.slots.get_mut(id.0) else {
            return false;
        };
        self.of_several_classes |= is_several;
        std::mem::replace(&mut slot.slots, set) != set
    }

    /// The set of slots that a reservation for a shape would take in the empty fleet, where that was asked.
    pub(crate) fn guessed_slots(&self, id: ShapeId) -> Option<SlotSetId> {
        let shape = self.get(id)?;
        let alike = self.alike.get(&RoomKey::of(shape))?;
        *alike.guessed_slots.at(self.guesses)?
    }

    /// The slots that are noted for a shape are those that a reservation for it, and for all alike, would take in the
    /// empty fleet.
    pub(crate) fn note_guessed(&mut self, id: ShapeId) {
        let what = Some(self.slot_set(id));
        let at = self.guesses;
        let key = self.get(id).map(|shape| RoomKey::of(shape));
        if let Some(alike) = key.and_then(|key| self.alike.get_mut(&key)) {
            alike.guessed_slots = AtGeneration { at, what };
        }
    }
}

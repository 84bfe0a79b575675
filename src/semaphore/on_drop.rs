//! What becomes of a permit that is dropped.

use crate::protocol::ReleaseMode;
use crate::semaphore::settings::Settings;

#[derive(Clone, Copy)]
pub(super) enum OnDrop {
    Release(ReleaseMode),
    LetExpire,
}

impl OnDrop {
    pub(super) const RETURN: Self = Self::Release(ReleaseMode::Return);

    /// Unless its holder says otherwise.
    pub(super) fn of(settings: &Settings) -> Self {
        if settings.let_expire_on_drop { Self::LetExpire } else { Self::RETURN }
    }

    /// A permit that was lost is not consumed any more; a start that is left counts all the same.
    pub(super) fn unless_lost(self, was_lost: bool) -> Self {
        match self {
            Self::Release(_) if was_lost => Self::RETURN,
            how => how,
        }
    }
}

"""Dependencies of schedules: a run waits until other schedules have succeeded since the last start."""

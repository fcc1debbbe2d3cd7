"""The claim: which jobs a turn hands out.

A worker sends wants: base lanes and a number of jobs. For each want:

1. :mod:`.wants` lists the lane sets beside the base lanes that the worker may claim from.
2. Suspects are picked first, while the turn allows suspects.
3. One lane without lanes beside it and with jobs of one priority is claimed by one statement. This is the common case.
4. Otherwise each lane set becomes a :class:`.picker.JobSource`, which gives its jobs in order. :class:`.picker.Picker`
   merges the sources by order key and takes the capacity of each picked job.
5. The picked jobs are claimed by id. Each source then writes what it learnt about its lanes.

| source | jobs of | module |
|---|---|---|
| ``LaneSource`` | one lane without keys | :mod:`.picker` |
| ``KeyedLaneSet`` | the lanes with keys of one lane set; lanes without capacity are parked | :mod:`.keyed` |
| ``FairQueue`` | all lanes of fair keys of one queue, by virtual time | :mod:`..fair` |
"""

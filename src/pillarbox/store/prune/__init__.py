"""Taking away what is finished: events whose every delivery has a receipt that is old enough, but never the highest id.

A batch is: read receipts in the order of their key from where the last batch ended (unsent events have none, so that
nobody even walks past them), lock the events by id, look for work of theirs, copy them to the archive if wanted, delete
by key. One transaction at READ COMMITTED, in the lock order of all others: parked, event, receipt.

========================  ==========================================================================
:mod:`.bounds`            the moment and the id up to which a run goes
:mod:`.sent`              which events of a stretch may go
:mod:`.dead`              the same for dead and buried ones, when that was asked for
:mod:`.work`              which ids still have work
:mod:`.removal`           the deletes
:mod:`.archive`           the copy, and rows for a function of the user
:mod:`.settling`          ``keep = 0``: removal in the settlement's own transaction
:mod:`.alone`             one pruner at a time
:mod:`.partitions`        whole partitions of the tables
========================  ==========================================================================
"""

"""Writer for OME-Zarr: NGFF 0.5 on Zarr v3 and 0.4 on Zarr v2, as a directory or as a single RFC-9 archive."""

from __future__ import annotations

from typing import TYPE_CHECKING

from openreadout.contracts import FormatDescriptor

if TYPE_CHECKING:
    from openreadout.contracts import Bound, ExportPlan, Journal, Lift, LiftPlan, Share, Sink


class OmeZarrWriter:
    """Lays out OME-Zarr; see `docs/export.md`."""

    descriptor = FormatDescriptor(
        id="ome-zarr",
        name="OME-Zarr",
        extensions=(".ome.zarr", ".ozx"),
        summary="NGFF 0.5 on Zarr v3, sharded; NGFF 0.4 on Zarr v2 with --ngff 0.4; .ozx archives",
    )

    def create(
        self,
        plan: ExportPlan,
        path: str,
        *,
        archive: bool = False,
        resume: bool = False,
        share: Share | None = None,
        journal: Journal | None = None,
    ) -> Sink:
        """Start an output at `path`, go on with what an earlier run left there, or write to it beside others."""
        from openreadout_ome_zarr_writer.sink import OmeZarrSink

        return OmeZarrSink(plan, path, archive=archive, resume=resume, share=share, journal=journal)

    def bound(self, plan: ExportPlan, *, archive: bool = False) -> Bound:
        """The files and bytes that an output of the plan has at most."""
        from openreadout_ome_zarr_writer.bound import bound

        return bound(plan, archive=archive)

    def lift(self, plan: LiftPlan) -> Lift:
        """Prepare Zarr v3 and NGFF 0.5 documents for arrays that stay where they are."""
        from openreadout_ome_zarr_writer.lift import OmeZarrLift

        return OmeZarrLift(plan)


WRITER = OmeZarrWriter()

"""The steps of the documents workflow, run by an outside worker: STEPWELL_URL=http://127.0.0.1:8080 python3 pipeline.py"""
import pathlib, sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import worker  # ../worker.py

SIZE = 4  # documents in a batch
PORTION = 2  # documents between two checkpoints

@worker.step("archive.split")
def split(claim):
    total = len(claim["task"]["context"]["documents"])
    cursors = [{"start": start, "end": min(start + SIZE, total)} for start in range(0, total, SIZE)]
    if not cursors:
        return {"batch_processing_outcome": {"type": "no_batches"}}
    return {"batch_processing_outcome": {"type": "create_batches", "worker_template_name": "convert",
                                         "worker_count": len(cursors), "cursor_configs": cursors, "total_items": total}}

@worker.step("archive.convert")
def convert(claim):
    """Converts a portion of the batch, and yields until the batch is done."""
    if claim["step"]["inputs"]["is_no_op"]:  # there are no documents
        return []
    batch = claim["step"]["inputs"]["cursor"]
    before = claim["step"].get("checkpoint") or {"cursor": batch["start"], "accumulated_results": []}
    end = min(before["cursor"] + PORTION, batch["end"])
    texts = [convert_one(d) for d in claim["task"]["context"]["documents"][before["cursor"]:end]]
    done = before["accumulated_results"] + texts
    if end < batch["end"]:
        raise worker.Checkpoint(end, items_processed=len(done), accumulated_results=done)
    return done

def convert_one(document):
    if document.endswith(".exe"):
        raise worker.Permanent(f"{document} is not a document")
    return document.upper()

@worker.step("archive.index")
def index(claim):
    batches = [result for name, result in claim["dependency_results"].items() if name.startswith("convert_")]
    return sorted(text for batch in batches for text in batch)

if __name__ == "__main__":
    worker.work()

"""Run: python3 -m unittest, with STEPWELL as the command that starts Stepwell."""
import pathlib, sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "testing")]
import pipeline, stepwell

def setUpModule():
    stepwell.start("--templates", HERE / "documents.yaml")

class PipelineTest(stepwell.TestCase):
    def run_worker(self):
        pipeline.worker.URL = self.url
        while pipeline.worker.work_once():
            pass

    def test_all_documents_are_in_the_index(self):
        task = self.create("archive/documents", documents=[f"{n}.txt" for n in range(10)])
        self.run_worker()
        self.status(task, "complete")
        self.assertEqual(self.result(task, "index"), [f"{n}.TXT" for n in range(10)])
        self.assertEqual(len(self.steps(task)), 1 + 3 + 1, "split, three batches and index")

    def test_a_batch_goes_on_from_its_checkpoint(self):
        self.stub("convert", {"checkpoint": {"cursor": 2, "accumulated_results": ["first", "second"]}}, then="handler")
        task = self.create("archive/documents", documents=["a", "b", "c", "d"])
        self.run_worker()
        self.assertEqual(self.result(task, "index"), ["C", "D", "first", "second"])

    def test_a_lost_worker_is_replaced(self):
        self.stub("convert", {"error": {"message": "out of memory"}}, then="handler")
        task = self.create("archive/documents", documents=["a", "b"])
        self.run_worker()
        self.status(task, "waiting_for_retry")
        self.clock(advance="1m")
        self.run_worker()
        self.status(task, "complete")

    def test_a_bad_batch_does_not_hold_up_the_others(self):
        task = self.create("archive/documents", documents=["virus.exe", "b", "c", "d", "e"])
        self.run_worker()
        self.assertEqual(self.result(task, "index"), ["E"])
        self.status(task, "blocked_by_failures")  # until a person has looked

    def test_nothing_to_do(self):
        task = self.create("archive/documents", documents=[])
        self.run_worker()
        self.status(task, "complete")

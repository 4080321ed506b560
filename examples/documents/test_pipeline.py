"""Run: pip install ../../packages/python, and python3 -m unittest."""
import pathlib
import pipeline, stepwell

class PipelineTest(stepwell.TestCase):
    flags = ["--templates", pathlib.Path(__file__).with_name("documents.yaml")]

    def run_worker(self):
        pipeline.worker.URL = self.sandbox.url
        self.sandbox.control("wait-idle")  # stubs run in the service, while the worker asks for steps
        while pipeline.worker.work_once():
            self.sandbox.control("wait-idle")

    def test_all_documents_are_in_the_index(self):
        task = self.sandbox.create("archive/documents", documents=[f"{n}.txt" for n in range(10)])
        self.run_worker()
        self.sandbox.status(task, "complete")
        self.assertEqual(self.sandbox.result(task, "index"), [f"{n}.TXT" for n in range(10)])
        self.assertEqual(len(self.sandbox.steps(task)), 1 + 3 + 1, "split, three batches and index")

    def test_a_batch_goes_on_from_its_checkpoint(self):
        self.sandbox.stub("convert", {"checkpoint": {"cursor": 2, "accumulated_results": ["first", "second"]}}, then="handler")
        task = self.sandbox.create("archive/documents", documents=["a", "b", "c", "d"])
        self.run_worker()
        self.assertEqual(self.sandbox.result(task, "index"), ["C", "D", "first", "second"])

    def test_a_lost_worker_is_replaced(self):
        self.sandbox.stub("convert", {"error": {"message": "out of memory"}}, then="handler")
        task = self.sandbox.create("archive/documents", documents=["a", "b"])
        self.run_worker()
        self.sandbox.status(task, "waiting_for_retry")
        self.sandbox.clock(advance="1m")
        self.run_worker()
        self.sandbox.status(task, "complete")

    def test_a_bad_batch_does_not_hold_up_the_others(self):
        task = self.sandbox.create("archive/documents", documents=["virus.exe", "b", "c", "d", "e"])
        self.run_worker()
        self.assertEqual(self.sandbox.result(task, "index"), ["E"])
        self.sandbox.status(task, "blocked_by_failures")  # until a person has looked

    def test_nothing_to_do(self):
        task = self.sandbox.create("archive/documents", documents=[])
        self.run_worker()
        self.sandbox.status(task, "complete")

"""The live viewer: what an agent sees, imagines and does, in a browser; needs the extra ``view``.

The control loop makes frames and never waits: `LatestFrame` keeps the newest one, and a thread
brings it to the page. Nothing here is imported before somebody asks to view.
"""

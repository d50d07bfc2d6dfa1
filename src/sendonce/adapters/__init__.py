"""One module for each thing of the outside world. They know the core, and not each other."""

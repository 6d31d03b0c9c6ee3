"""What to cite."""

BIBTEX = """\
@software{streampca,
  title  = {streampca: streaming, differentially private {PCA}},
  author = {{The streampca maintainers}},
  note   = {Apache-2.0},
}

@inproceedings{DTTZ14,
  title     = {Analyze {Gauss}: Optimal Bounds for Privacy-Preserving Principal Component Analysis},
  author    = {Dwork, Cynthia and Talwar, Kunal and Thakurta, Abhradeep and Zhang, Li},
  booktitle = {STOC},
  year      = {2014},
}

@inproceedings{DMPSGT24,
  title     = {Efficient and Near-Optimal Noise Generation for Streaming Differential Privacy},
  author    = {Dvijotham, Krishnamurthy and McMahan, H. Brendan and Pillutla, Krishna and Steinke, Thomas
               and Thakurta, Abhradeep},
  booktitle = {FOCS},
  year      = {2024},
}

@inproceedings{DMRST22,
  title     = {Improved Differential Privacy for {SGD} via Optimal Private Linear Operators on Adaptive Streams},
  author    = {Denisov, Sergey and McMahan, H. Brendan and Rush, Keith and Smith, Adam and Thakurta, Abhradeep Guha},
  booktitle = {NeurIPS},
  year      = {2022},
}

@inproceedings{JXZ16,
  title     = {Wishart Mechanism for Differentially Private Principal Components Analysis},
  author    = {Jiang, Wuxuan and Xie, Cong and Zhang, Zhihua},
  booktitle = {AAAI},
  year      = {2016},
}

@inproceedings{SS21,
  title     = {Privately Learning Subspaces},
  author    = {Singhal, Vikrant and Steinke, Thomas},
  booktitle = {NeurIPS},
  year      = {2021},
}

@inproceedings{UU21,
  title     = {A Framework for Private Matrix Analysis in Sliding Window Model},
  author    = {Upadhyay, Jalaj and Upadhyay, Sarvagya},
  booktitle = {ICML},
  year      = {2021},
}

@inproceedings{LKJO22,
  title     = {{DP-PCA}: Statistically Optimal and Differentially Private {PCA}},
  author    = {Liu, Xiyang and Kong, Weihao and Jain, Prateek and Oh, Sewoong},
  booktitle = {NeurIPS},
  year      = {2022},
}
"""
